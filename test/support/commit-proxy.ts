import { Transform } from 'node:stream'
import type { Test } from 'tap'
import { startRelay } from './relay.ts'

/** When the connection is lost: before PostgreSQL receives COMMIT, or after it has committed. */
export type LostCommit = 'before' | 'after'

/**
 * Returns the address of a database through a relay that cuts the connection around its first COMMIT. Later connections
 * reach the database.
 */
export async function losingCommit(t: Test, databaseUrl: string, moment: LostCommit): Promise<string> {
  let commit: 'awaited' | 'sent' | 'lost' = 'awaited'
  const lose = (): void => {
    commit = 'lost'
    relay.cut()
  }
  const relay = await startRelay(t, {
    target: () => new URL(databaseUrl),
    towardsDatabase: () =>
      new Transform({
        transform(bytes: Buffer, _encoding, done) {
          const isCommit = commit === 'awaited' && bytes.includes('COMMIT\0')
          if (isCommit && moment === 'before') return lose()
          if (isCommit) commit = 'sent'
          done(null, bytes)
        },
      }),
    towardsClient: () =>
      new Transform({
        transform: (bytes: Buffer, _encoding, done) => (commit === 'sent' ? lose() : done(null, bytes)),
      }),
  })
  return relay.url
}
