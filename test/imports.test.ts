import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import t from 'tap'
import ts from 'typescript'

/** The folders of `src`, top to bottom. A module imports from its own folder and from lower levels, never from one beside it. */
const levels: readonly (readonly string[])[] = [
  [''],
  ['cli', 'service'],
  ['metrics', 'local'],
  ['process'],
  ['http'],
  ['config'],
  ['tracing'],
  ['inventory'],
  ['inventory/list', 'inventory/updates', 'inventory/transfer', 'inventory/reports'],
  ['inventory/history', 'metrics/request-metrics.ts'],
  ['inventory/entry', 'api-keys'],
  ['database/admin'],
  ['database', 'contract'],
  ['collections'],
]

/** The innermost folder or file of the table that a module belongs to. */
function findOwner(module: string): string {
  const names = levels
    .flat()
    .filter((name) => name === '' || module === name || module.startsWith(`${name}/`))
  return names.reduce((longest, name) => (name.length > longest.length ? name : longest))
}

const findLevel = (owner: string): number => levels.findIndex((names) => names.includes(owner))

t.test('every module imports from its own folder and from lower levels alone', async (t) => {
  const modules = (await readdir('src', { recursive: true })).filter((file) => file.endsWith('.ts'))
  for (const module of modules) {
    const { importedFiles } = ts.preProcessFile(await readFile(path.join('src', module), 'utf8'))
    for (const { fileName } of importedFiles.filter(({ fileName }) => fileName.startsWith('.'))) {
      const [from, to] = [findOwner(module), findOwner(path.join(path.dirname(module), fileName))]
      t.ok(from === to || findLevel(from) < findLevel(to), `${module} imports ${fileName}`)
    }
  }
})
