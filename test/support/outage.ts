import { existsSync, readdirSync, readFileSync, readlinkSync } from 'node:fs'
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
  /** Leaves every connection as it is and closes new ones at once, but for those of one process where /proc says whose. */
  refuseNew(exceptPid: number): void
  /** Ends the outage. */
  restore(): Promise<void>
  /** How many bytes have come from the database. */
  received(): number
}

export async function outageOf(t: Test, databaseUrl: string): Promise<Outage> {
  let isStalled = false
  let acceptsOnly: number | undefined
  let received = 0
  const relay = await startRelay(t, {
    target: () => new URL(databaseUrl),
    accepts: ({ remotePort }) => acceptsOnly === undefined || hasPort(acceptsOnly, remotePort),
    onConnection(near, far) {
      far.on('data', ({ length }) => (received += length))
      if (isStalled) for (const socket of [near, far]) socket.unpipe()
    },
  })
  const cut = (): void => {
    relay.close()
    relay.cut()
  }
  return {
    url: relay.url,
    cut: async () => cut(),
    received: () => received,
    stall() {
      isStalled = true
      for (const socket of relay.sockets) socket.unpipe().pause()
    },
    refuseNew(exceptPid) {
      acceptsOnly = exceptPid
    },
    async restore() {
      acceptsOnly = undefined
      isStalled = false
      relay.cut()
      await relay.listen()
    },
  }
}

/** Whether a process has the local end of a connection over IPv4 (proc(5): /proc/net/tcp, /proc/PID/fd). */
function hasPort(pid: number, port = 0): boolean {
  const folder = `/proc/${pid}/fd`
  if (!existsSync('/proc/net/tcp') || !existsSync(folder)) return false
  const end = `0100007F:${port.toString(16).toUpperCase().padStart(4, '0')}`
  const lines = readFileSync('/proc/net/tcp', 'utf8').split('\n')
  const inode = lines.map((line) => line.trim().split(/\s+/)).find(([, local]) => local === end)?.[9]
  return readdirSync(folder).some((file) => targetOf(`${folder}/${file}`) === `socket:[${inode}]`)
}

/** What an open file of a process leads to; undefined if it was closed in the meantime. */
function targetOf(file: string): string | undefined {
  try {
    return readlinkSync(file)
  } catch {
    return undefined
  }
}
