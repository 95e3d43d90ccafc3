import type { Work } from '../cases.ts'
import type { Sample } from '../statistics.ts'
import { autocannonGenerator } from './autocannon.ts'
import { wrkGenerator } from './wrk.ts'

/** The requests to send to a server, on how many connections, and for how long. */
export interface Load {
  readonly origin: string
  readonly key: string
  readonly work: Exclude<Work, 'after-change'>
  /** Sent in If-None-Match if the work uses it; empty if the server has no entity tags. */
  readonly etag: string
  /** Updates go to ids from 1 to this. */
  readonly entries: number
  /** The length of a whole list. */
  readonly listBytes: number
  readonly connections: number
  readonly seconds: number
}

/** A load generator that sends requests as fast as they are answered, one at a time on each connection. */
export interface Generator {
  /** Its name and version. */
  readonly name: string
  run(load: Load): Promise<Sample>
}

/** wrk if it is installed, otherwise autocannon. */
export async function findGenerator(): Promise<Generator> {
  return (await wrkGenerator()) ?? autocannonGenerator()
}
