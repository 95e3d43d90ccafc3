import { Transform } from 'node:stream'
import type { Test } from 'tap'
import { startRelay } from './relay.ts'

/** An address of a database that a test opens when it wants to. */
export interface LackingServer {
  readonly url: string
  /** Accepts connections from now on; before, each is closed. */
  open(): void
}

/**
 * A server that lacks a feature. Statements that contain `feature` reach PostgreSQL with another word of the same length in
 * its place, which PostgreSQL does not know: the error is its own.
 */
export async function lackingServer(t: Test, url: string, feature: string): Promise<LackingServer> {
  const unknown = feature.replace(/[a-z](?=[^a-z]*$)/i, (last) => (last === 'q' ? 'x' : 'q'))
  let isOpen = false
  const relay = await startRelay(t, {
    target: () => new URL(url),
    accepts: () => isOpen,
    // pg writes a statement at once, so it arrives in one piece.
    towardsDatabase: () =>
      new Transform({
        transform(piece: Buffer, _encoding, done) {
          done(null, Buffer.from(piece.toString('latin1').replaceAll(feature, unknown), 'latin1'))
        },
      }),
  })
  return {
    url: relay.url,
    open() {
      isOpen = true
    },
  }
}
