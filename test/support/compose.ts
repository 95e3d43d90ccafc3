import { execFile } from 'node:child_process'
import { promisify } from 'node:util'

/** Runs a shell command, and resolves with its output. Rejects with the outcome if it fails. */
export type Shell = (command: string) => Promise<string>

/** A shell in the folder of a deployment by compose. */
export function shellIn(cwd: string): Shell {
  // Compose prefers variables to `.env`.
  const passed = Object.entries(process.env).filter(([name]) => /^(PATH|HOME|DOCKER_\w+)$/.test(name))
  const env = Object.fromEntries(passed)
  return async (command) =>
    (await promisify(execFile)('sh', ['-euc', command], { cwd, env, maxBuffer: 1e8 })).stdout
}

/** The command that copies the files of the project into the folder of the shell. */
export const copyProject =
  `git -C '${process.cwd()}' ls-files -z --cached --others --exclude-standard | ` +
  `tar -C '${process.cwd()}' --null --files-from=- -c | tar -x --no-same-permissions`
