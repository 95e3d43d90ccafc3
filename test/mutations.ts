/**
 * Changes one small thing of the compiled service at a time, such as a condition or an `await`, and runs the tests of its folder:
 * a change that no test notices is printed. Takes `--seed` and `--count`; the same seed makes the same changes.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { parseArgs } from 'node:util'
import ts from 'typescript'
import { root } from './support/root.ts'
import { startTestServer } from './support/server.ts'

interface Mutation {
  readonly file: string
  readonly line: number
  readonly start: number
  readonly end: number
  readonly text: string
  readonly kind: string
}

/** How long the tests may take; a change that makes them hang is noticed, too. */
const LIMIT_MS = 300_000
/** These run for every change, before those of its folder. */
const ALWAYS = [
  'test/http/errors.test.ts',
  'test/inventory/list/sharing.test.ts',
  'test/inventory/updates/update-inventory.test.ts',
]
const OPPOSITES = [
  ['<', '<='],
  ['>', '>='],
  ['===', '!=='],
  ['&&', '||'],
]

function mutationsOf(file: string, source: string): Mutation[] {
  const found: Mutation[] = []
  const tree = ts.createSourceFile(file, source, ts.ScriptTarget.ES2023, true)
  const add = (node: ts.Node, kind: string, text: string): void => {
    const start = node.getStart(tree)
    const line = tree.getLineAndCharacterOfPosition(start).line + 1
    found.push({ file, line, start, end: node.end, text, kind })
  }
  const visit = (node: ts.Node): void => {
    const text = node.getText(tree)
    // Nobody promises the words of the log, and types have no effect.
    if (/^(await )?(\w+\.)*(log|logger|console)\.\w+\(/.test(text) || ts.isTypeNode(node)) return
    if (ts.isExpressionStatement(node)) {
      const isAwaited = ts.isAwaitExpression(node.expression)
      if (isAwaited) add(node, 'await dropped', text.replace(/^await /, ''))
      if (isAwaited || ts.isCallExpression(node.expression)) add(node, 'call removed', ';')
    }
    if (ts.isIfStatement(node) || ts.isConditionalExpression(node)) {
      const condition = ts.isIfStatement(node) ? node.expression : node.condition
      add(condition, 'condition inverted', `!(${condition.getText(tree)})`)
    }
    if (ts.isNumericLiteral(node) && Number(node.text) > 1) add(node, 'constant times ten', `(${text} * 10)`)
    if (ts.isBinaryExpression(node)) {
      const operator = node.operatorToken.getText(tree)
      const other = OPPOSITES.find((pair) => pair.includes(operator))?.find((text) => text !== operator)
      if (other !== undefined) add(node.operatorToken, `${operator} to ${other}`, other)
    }
    ts.forEachChild(node, visit)
  }
  visit(tree)
  return found
}

/** A generator of numbers from 0 to 1 (mulberry32). */
function randomFrom(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

/** The tests beside a module, those that are named after it, and where there are neither, those of the programs. */
async function testsFor(file: string): Promise<string[]> {
  const folder = path.join('test', path.relative('src', path.dirname(file)))
  const beside = existsSync(folder)
    ? (await readdir(folder))
        .filter((name) => name.endsWith('.test.ts'))
        .map((name) => path.join(folder, name))
    : []
  const [word = ''] = path.basename(file, '.ts').split('-')
  const programs = (await readdir('test/programs')).map((name) => path.join('test/programs', name))
  const named = programs.filter((name) => path.basename(name).startsWith(word))
  const others = ['cli', 'server', 'first-start'].map((name) => `test/programs/${name}.test.ts`)
  const tests = [...beside, ...named]
  return [...new Set([...ALWAYS, ...(tests.length > 0 ? tests : others)])]
}

/** Returns whether a test fails or the limit is reached. */
async function isNoticed({ file }: Mutation, mutated: string, url: string): Promise<boolean> {
  const compiled = path.join('dist', path.relative('src', file).replace(/\.ts$/, '.js'))
  const original = await readFile(compiled)
  const { config } = ts.readConfigFile('tsconfig.json', ts.sys.readFile)
  const { options } = ts.convertCompilerOptionsFromJson({ ...config.compilerOptions, module: 'esnext' }, root)
  await writeFile(
    compiled,
    ts.transpileModule(mutated, { fileName: file, compilerOptions: options }).outputText,
  )
  try {
    const args = ['.test-build/test/run.js', '--bail', ...(await testsFor(file))]
    const env = { ...process.env, TEST_DATABASE_URL: url }
    const tests = spawn(process.execPath, args, { env, stdio: 'ignore' })
    const timer = setTimeout(() => tests.kill(), LIMIT_MS)
    const [code] = await once(tests, 'exit')
    clearTimeout(timer)
    return code !== 0
  } finally {
    await writeFile(compiled, original)
  }
}

const { values } = parseArgs({ options: { seed: { type: 'string' }, count: { type: 'string' } } })
const random = randomFrom(Number(values.seed ?? 1))
const folders = new Map<string, Mutation[]>()
for (const name of (await readdir('src', { recursive: true }))
  .filter((name) => name.endsWith('.ts'))
  .sort()) {
  const file = path.join('src', name)
  const [folder = ''] = name.split(path.sep)
  folders.set(folder, [...(folders.get(folder) ?? []), ...mutationsOf(file, await readFile(file, 'utf8'))])
}
const temporary = await mkdtemp(path.join(tmpdir(), 'petstore-inventory-mutations-'))
const server = await startTestServer(temporary)
let noticed = 0
let made = 0
const count = Number(values.count ?? 100)
// By turns, so that small folders are not left out.
const passing = new Set<string>()
const lists = [...folders.values()].filter((list) => list.length > 0)
while (made < count && lists.length > 0) {
  const list = lists.shift() ?? []
  const [mutation] = list.splice(Math.floor(random() * list.length), 1)
  if (mutation === undefined) continue
  lists.push(list)
  const { file, line, kind, start, end, text } = mutation
  const source = await readFile(file, 'utf8')
  const tests = (await testsFor(file)).join()
  // What fails without a change says nothing about one.
  if (!passing.has(tests) && (await isNoticed(mutation, source, server.url))) {
    console.log(`skipped  ${file}: its tests fail without a change`)
    continue
  }
  passing.add(tests)
  const found = await isNoticed(mutation, source.slice(0, start) + text + source.slice(end), server.url)
  made++
  if (found) noticed++
  const [before] = source.slice(start, end).split('\n', 1)
  console.log(`${found ? 'noticed ' : 'SURVIVED'} ${file}:${line} ${kind}: ${before}`)
}
console.log(`${noticed} of ${made} changes were noticed.`)
await server.stop()
await rm(temporary, { recursive: true })
