import { existsSync } from 'node:fs'
import path from 'node:path'

/** The folder of the project. The tests run compiled, in another folder than their sources. */
export const root = findRoot(import.meta.dirname)

function findRoot(folder: string): string {
  return existsSync(path.join(folder, 'package.json')) ? folder : findRoot(path.dirname(folder))
}
