/**
 * Changes one small thing of the compiled service at a time, such as a condition or an `await`, and runs the tests that are
 * named like its module until one fails. Prints each change and the test that noticed it, or that it survived. The same
 * `--seed` makes the same `--count` changes of the same source; `--only 3,17` makes the third and the 17th of them, and
 * arguments are the test files to run instead.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { text } from 'node:stream/consumers'
import { parseArgs } from 'node:util'
import ts from 'typescript'
import { randomOf } from './support/random.ts'
import { endGroup } from './support/run-tap.ts'
import { startTestServer } from './support/server.ts'

interface Mutation {
  readonly file: string
  readonly line: number
  readonly kind: string
  readonly before: string
  /** The whole module, changed. */
  readonly source: string
}

/** How long a test file may take; a change that makes it hang is noticed, too. */
const LIMIT_MS = 180_000
/** At most this many test files that are named like a module run for a change of it. */
const NAMED_FILES = 4
/** These run for every change, after those that are named like the module. */
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
    const [before = ''] = node.getText(tree).split('\n', 1)
    found.push({ file, line, kind, before, source: source.slice(0, start) + text + source.slice(node.end) })
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

/** The beginnings of the words of a path, so that `migrations` has one in common with `migrate`. */
function wordsOf(file: string): string[] {
  const words = file.replace(/^(src|test)\/|(\.test)?\.ts$/g, '').split(/[/-]/)
  return words.map((word) => word.slice(0, 4))
}

/**
 * Returns the test files whose paths have words in common with that of a module, or with the names of the few that import it,
 * those with the rarest words first.
 */
function testsFor(file: string): string[] {
  const names = wordsOf(path.basename(file))
  const near = importers.get(file) ?? []
  const words = near.length > 3 ? [] : near.flatMap((importer) => wordsOf(path.basename(importer)))
  const weights = [...new Set([...wordsOf(file), ...words])].map((word) => {
    const count = allTests.filter((test) => wordsOf(test).includes(word)).length
    return { word, weight: (names.includes(word) ? 3 : 1) / count }
  })
  const rated = allTests.map((test) => {
    const common = weights.filter(({ word }) => wordsOf(test).includes(word))
    return { test, rating: common.reduce((sum, { weight }) => sum + weight, 0) }
  })
  const named = rated.filter(({ rating }) => rating > 0).sort((a, b) => b.rating - a.rating)
  return [...new Set([...named.slice(0, NAMED_FILES).map(({ test }) => test), ...ALWAYS])]
}

/** Runs one test file as `npm test` does. Returns the first failure: a test, or that the limit was reached. */
async function failureOf(test: string): Promise<string | undefined> {
  const folder = await mkdtemp(path.join(temporary, 'files-'))
  await chmod(folder, 0o755)
  const compiled = path.join('.test-build', test.replace(/\.ts$/, '.js'))
  const child = spawn(process.execPath, ['--enable-source-maps', compiled], {
    env: { ...process.env, ...testEnvironment, TMPDIR: folder },
    stdio: ['ignore', 'pipe', 'ignore'],
    detached: true,
  })
  const timer = setTimeout(() => endGroup(child), LIMIT_MS)
  const [output, [code]] = await Promise.all([text(child.stdout), once(child, 'exit')])
  clearTimeout(timer)
  // After its first failure, a test ends nothing that it has started.
  endGroup(child)
  // What it has started may still be stopping.
  await rm(folder, { recursive: true, force: true, maxRetries: 10 })
  return code === 0 ? undefined : (/^ *not ok \d+ - (.{1,100})/m.exec(output)?.[1] ?? 'it did not end')
}

/** Returns the first failure of a test that passes without the change, or undefined for a survivor. */
async function failureWith({ file, source }: Mutation): Promise<string | undefined> {
  const compiled = path.join('dist', path.relative('src', file).replace(/\.ts$/, '.js'))
  const original = await readFile(compiled)
  const { outputText } = ts.transpileModule(source, { fileName: file, compilerOptions })
  try {
    for (const test of positionals.length > 0 ? positionals : testsFor(file)) {
      await writeFile(compiled, outputText)
      const failure = await failureOf(test)
      await writeFile(compiled, original)
      if (failure === undefined) continue
      if (!passing.has(test) && (await failureOf(test)) !== undefined) {
        console.log(`${test} fails without a change.`)
        continue
      }
      passing.add(test)
      return `${test}: ${failure}`
    }
    return undefined
  } finally {
    await writeFile(compiled, original)
  }
}

const { values, positionals } = parseArgs({
  options: { seed: { type: 'string' }, count: { type: 'string' }, only: { type: 'string' } },
  allowPositionals: true,
})
const random = randomOf(Number(values.seed ?? 1))
const count = Number(values.count ?? 100)
const only = values.only?.split(',').map(Number)
const { config } = ts.readConfigFile('tsconfig.json', ts.sys.readFile)
const { options: compilerOptions } = ts.convertCompilerOptionsFromJson(
  { ...config.compilerOptions, module: 'esnext' },
  '.',
)
const allTests = (await readdir('test', { recursive: true }))
  .filter((name) => name.endsWith('.test.ts'))
  .sort()
  .map((name) => path.join('test', name))
const folders = new Map<string, Mutation[]>()
/** The modules that import a module. */
const importers = new Map<string, string[]>()
const sources = (await readdir('src', { recursive: true })).filter((name) => name.endsWith('.ts')).sort()
for (const name of sources) {
  const file = path.join('src', name)
  const folder = path.dirname(file)
  const source = await readFile(file, 'utf8')
  folders.set(folder, [...(folders.get(folder) ?? []), ...mutationsOf(file, source)])
  for (const { fileName } of ts.preProcessFile(source).importedFiles) {
    const imported = path.join(folder, fileName)
    importers.set(imported, [...(importers.get(imported) ?? []), file])
  }
}
// In rotation, so that small folders are not left out.
const lists = [...folders.values()].filter((list) => list.length > 0)
const sample: Mutation[] = []
while (sample.length < count && lists.length > 0) {
  const list = lists.shift() ?? []
  sample.push(...list.splice(random(list.length), 1))
  if (list.length > 0) lists.push(list)
}
const temporary = await mkdtemp(path.join(tmpdir(), 'petstore-inventory-mutations-'))
await chmod(temporary, 0o755)
const server = await startTestServer(temporary)
const testEnvironment = {
  ...server.env,
  TAP_BAIL: '1',
  TAP_TIMEOUT: String(LIMIT_MS / 1000),
}
// If this process is killed, the next build must not take a changed module for a compiled one.
for (const file of ['.sources', '.tsbuildinfo']) await rm(`dist/${file}`, { force: true })
const passing = new Set<string>()
let noticed = 0
for (const [index, mutation] of sample.entries()) {
  if (only !== undefined && !only.includes(index + 1)) continue
  const { file, line, kind, before } = mutation
  const failure = await failureWith(mutation)
  if (failure !== undefined) noticed++
  console.log(`${index + 1} ${file}:${line} ${kind}: ${before}\n  ${failure ?? 'SURVIVED'}`)
}
console.log(`${noticed} of ${only?.length ?? sample.length} changes were noticed.`)
await server.stop()
await rm(temporary, { recursive: true })
