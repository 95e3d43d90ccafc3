import { readdir, readFile } from 'node:fs/promises'

/** How many times a second Linux counts the CPU time of a process (proc(5), `sysconf(_SC_CLK_TCK)`). */
const TICKS_PER_SECOND = 100

/** The CPU time of a process and its children since its start, in seconds; undefined if it cannot be known, as outside Linux. */
export async function cpuSecondsOf(pid: number | undefined): Promise<number | undefined> {
  if (process.platform !== 'linux' || pid === undefined) return undefined
  let ticks = 0
  for (const name of await readdir('/proc')) {
    if (!/^\d+$/.test(name)) continue
    const stat = await readFile(`/proc/${name}/stat`, 'utf8').catch(() => '')
    // The second field is the name of the program, in parentheses, which may have spaces in it.
    const [, parent, ...fields] = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    if (Number(name) !== pid && Number(parent) !== pid) continue
    // utime and stime, and those of children that have ended.
    ticks += fields.slice(9, 13).reduce((sum, field) => sum + Number(field), 0)
  }
  return ticks / TICKS_PER_SECOND
}
