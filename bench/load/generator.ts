import type { Work } from '../cases.ts'
import type { Sample } from '../statistics.ts'
import { autocannonGenerator } from './autocannon.ts'
import { wrkGenerator } from './wrk.ts'

/** What is to be asked of a server, and by how many connections for how long. */
export interface Load {
  readonly origin: string
  readonly key: string
  readonly work: Exclude<Work, 'after-change'>
  /** Sent in If-None-Match where the work has it; empty where the server has none. */
  readonly etag: string
  /** Updates go to ids from 1 to this. */
  readonly entries: number
  /** How long a whole list is. */
  readonly listBytes: number
  readonly connections: number
  readonly seconds: number
}

/** A program that sends requests as fast as they are answered, one at a time on each connection. */
export interface Generator {
  /** Its name and version. */
  readonly name: string
  run(load: Load): Promise<Sample>
}

/** wrk where it is installed, else autocannon. */
export async function findGenerator(): Promise<Generator> {
  return (await wrkGenerator()) ?? autocannonGenerator()
}
