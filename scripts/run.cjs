/**
 * Builds the program in the first argument if its sources have changed, and runs it with the other arguments, in this process and so
 * with its flags. In CommonJS, because Node loads no ES module from a path with a backslash.
 */
const path = require('node:path')
const { pathToFileURL } = require('node:url')

const [node, , program, ...args] = process.argv
if (path.sep === '/' && __dirname.includes('\\')) {
  console.error(
    `petstore-inventory: Node cannot run in ${__dirname}, because of the backslash. Use another folder.`,
  )
  process.exit(1)
}
void import('./build.js')
  .then(() => program.startsWith('.test-build') && import('./build-tests.js'))
  .then(() => {
    process.argv = [node, path.resolve(program), ...args]
    return import(pathToFileURL(program).href)
  })
