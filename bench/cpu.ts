import { readdir, readFile } from 'node:fs/promises'

/** Unit of CPU times in `/proc` on Linux: `sysconf(_SC_CLK_TCK)` (proc(5)). */
const TICKS_PER_SECOND = 100

/**
 * Returns the CPU time of a process and its children since their start, in seconds, or undefined if it is unknown, as on macOS.
 */
export async function cpuSecondsOf(pid: number | undefined): Promise<number | undefined> {
  if (process.platform !== 'linux' || pid === undefined) return undefined
  let ticks = 0
  for (const name of await readdir('/proc')) {
    if (!/^\d+$/.test(name)) continue
    const stat = await readFile(`/proc/${name}/stat`, 'utf8').catch(() => '')
    // The second field is the name of the program in parentheses, which may contain spaces.
    const [, parent, ...fields] = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    if (Number(name) !== pid && Number(parent) !== pid) continue
    // utime, stime, cutime, cstime: the CPU time of the process and of its children that have ended.
    ticks += fields.slice(9, 13).reduce((sum, field) => sum + Number(field), 0)
  }
  return ticks / TICKS_PER_SECOND
}
