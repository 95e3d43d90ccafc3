import { existsSync } from 'node:fs'
import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { eventually } from './eventually.ts'

/** Stops the PostgreSQL servers whose data is in a folder, which tests that were interrupted have left. */
export async function stopServersBelow(folder: string): Promise<void> {
  const names = await readdir(folder, { recursive: true })
  for (const name of names.filter((name) => path.basename(name) === 'postmaster.pid')) {
    const [first] = (await readFile(path.join(folder, name), 'utf8').catch(() => '')).split('\n')
    const pid = Number(first)
    if (!(await isPostgres(pid))) continue
    process.kill(pid, 'SIGQUIT')
    await eventually(`PostgreSQL, process ${pid}, to stop`, async () =>
      (await isPostgres(pid)) ? undefined : true,
    )
  }
}

/** The process id in a file may belong to another program by now; without /proc, nothing tells. */
async function isPostgres(pid: number): Promise<boolean> {
  try {
    process.kill(pid, 0)
  } catch {
    return false
  }
  return (
    !existsSync('/proc/self') ||
    (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).includes('postgres')
  )
}
