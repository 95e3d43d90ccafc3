/**
 * Builds the program in the first argument if its sources have changed, and runs it with the other arguments, in this process: a
 * shell between npm and the program may keep signals to itself.
 */
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import './build.js'

const [node, , program, ...args] = process.argv
if (program.startsWith('.test-build')) await import('./build-tests.js')
process.argv = [node, path.resolve(program), ...args]
await import(pathToFileURL(program).href)
