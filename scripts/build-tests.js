/** Translates the tests to .test-build, after src. */
import { existsSync, symlinkSync } from 'node:fs'
import { compile } from './build.js'

compile({
  sources: ['test', 'examples'],
  output: '.test-build',
  project: 'tsconfig.test.json',
  sourceOf: (module) => module,
  // Node resolves the link, so the tests import the modules of dist.
  finish: () => existsSync('.test-build/src') || symlinkSync('../dist', '.test-build/src', 'junction'),
})
