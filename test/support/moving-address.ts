import type { Test } from 'tap'
import { startRelay } from './relay.ts'

/** An address of a database behind which a test can put another server, as a virtual IP or a DNS name would. */
export interface MovingAddress {
  readonly url: string
  /** Sends new connections to the server at `url`; those that are open stay where they are. */
  leadTo(url: string): void
  /** Breaks every connection that is open. */
  cut(): void
}

/** An address that leads to the server at `url` to begin with, under the same role and database. */
export async function movingAddress(t: Test, url: string): Promise<MovingAddress> {
  let target = new URL(url)
  const relay = await startRelay(t, { target: () => target })
  return {
    url: relay.url,
    leadTo(next) {
      target = new URL(next)
    },
    cut: relay.cut,
  }
}
