#!/usr/bin/env node
/** The command line. Imports the rest only when Node is known to be able to load it. */
import { requireSupportedNode } from './process/node-version.js'

requireSupportedNode()
const { runCommand } = await import('./cli/run.ts')
await runCommand(process.argv.slice(2))
