import { readdir, readFile } from 'node:fs/promises'

/** What a process uses, as Linux counts it; undefined where there is no /proc. */
export interface Usage {
  /** Memory in use, in megabytes. */
  readonly memory: number
  /** Open files, sockets among them. */
  readonly files: number
}

export async function usageOf(pid: number | undefined): Promise<Usage | undefined> {
  try {
    const status = await readFile(`/proc/${pid}/status`, 'utf8')
    const files = await readdir(`/proc/${pid}/fd`)
    return { memory: Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1024, files: files.length }
  } catch {
    return undefined
  }
}
