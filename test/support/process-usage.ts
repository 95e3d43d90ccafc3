import { readdir, readFile } from 'node:fs/promises'

/** What a process uses, as Linux counts it: memory in megabytes, and open files, sockets among them. Undefined without /proc. */
export async function usageOf(pid: number | undefined) {
  try {
    const status = await readFile(`/proc/${pid}/status`, 'utf8')
    const files = await readdir(`/proc/${pid}/fd`)
    return { memory: Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1024, files: files.length }
  } catch {
    return undefined
  }
}
