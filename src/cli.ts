#!/usr/bin/env node
import { surviveClosedOutput } from './cli/output.ts'
import { runCommand } from './cli/run.ts'
import { ignoreInspectorSignal } from './process/signals.ts'

ignoreInspectorSignal()
surviveClosedOutput(process.stdout, process.stderr)
await runCommand(process.argv.slice(2))
