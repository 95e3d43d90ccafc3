import type { Test } from 'tap'
import { startRelay } from './relay.ts'

/** A way to a database that a test can cut, block and open again, as a network or a server would. */
export interface Outage {
  /** The address of the database through this way. */
  readonly url: string
  /** Cuts every connection and refuses new ones. */
  cut(): Promise<void>
  /** Lets nothing through, in either direction, without closing anything. */
  stall(): void
  /** Leaves every connection as it is and closes new ones at once. */
  refuseNew(): void
  /** Ends the outage. */
  restore(): Promise<void>
  /** How many bytes have come from the database. */
  received(): number
}

export async function outageOf(t: Test, databaseUrl: string): Promise<Outage> {
  let isStalled = false
  let isRefusing = false
  let received = 0
  const relay = await startRelay({
    target: () => new URL(databaseUrl),
    accepts: () => !isRefusing,
    onConnection(near, far) {
      far.on('data', ({ length }) => (received += length))
      if (isStalled) for (const socket of [near, far]) socket.unpipe()
    },
  })
  const cut = (): void => {
    relay.close()
    relay.cut()
  }
  t.teardown(cut)
  return {
    url: relay.url,
    cut: async () => cut(),
    received: () => received,
    stall() {
      isStalled = true
      for (const socket of relay.sockets) socket.unpipe().pause()
    },
    refuseNew() {
      isRefusing = true
    },
    async restore() {
      isRefusing = false
      isStalled = false
      relay.cut()
      await relay.listen()
    },
  }
}
