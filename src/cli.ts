#!/usr/bin/env node
/** The command line. */
import { runCommand } from './cli/run.ts'

await runCommand(process.argv.slice(2))
