import { fork } from 'node:child_process'
import { once } from 'node:events'
import { availableParallelism } from 'node:os'
import { fileURLToPath } from 'node:url'
import { type Sample, sampleOf } from '../statistics.ts'

/** The result of one of several processes that generate load. */
export interface Share {
  /** The time of each response, in milliseconds. */
  readonly times: Float64Array
  readonly seconds: number
  readonly bytes: number
  readonly errors: number
}

/** The combined result of all processes. */
export interface Total {
  readonly sample: Sample
  readonly answers: number
  readonly bytes: number
}

/** Runs a module of this folder in a process for each order, concurrently, and combines their results. */
export async function inProcesses<Order extends object>(name: string, orders: Order[]): Promise<Total> {
  const file = fileURLToPath(new URL(name, import.meta.url))
  const shares = await Promise.all(orders.map((order) => inProcess(file, order)))
  const times = new Float64Array(shares.reduce((sum, share) => sum + share.times.length, 0))
  let filled = 0
  let bytes = 0
  let errors = 0
  for (const share of shares) {
    times.set(share.times, filled)
    filled += share.times.length
    bytes += share.bytes
    errors += share.errors
  }
  const seconds = Math.max(...shares.map((share) => share.seconds))
  return { sample: sampleOf(times, seconds, errors), answers: times.length, bytes }
}

async function inProcess(file: string, order: object): Promise<Share> {
  const child = fork(file, { serialization: 'advanced' })
  const ended = once(child, 'disconnect')
  const shares: Share[] = []
  child.on('message', (share: Share) => shares.push(share))
  child.send(order)
  await ended
  const [share] = shares
  if (share === undefined) throw new Error(`${file} exited before it reported`)
  return share
}

/** In such a process, waits for its order. */
export function receiveOrder<Order>(): Promise<Order> {
  return new Promise((resolve) => process.once('message', (order: Order) => resolve(order)))
}

/** In such a process, reports the result; the process then exits. */
export function reportShare(share: Share): void {
  process.send?.(share, () => process.disconnect())
}

/**
 * The number of threads or processes that generate the load. One is not enough for a server that only sends bytes; more
 * would take the cores that the servers and the database need.
 */
export function loadProcesses(connections: number): number {
  return Math.min(connections, availableParallelism() > 2 ? 2 : 1)
}

/** Splits a number into parts that differ by at most 1. */
export function split(count: number, parts: number): number[] {
  return Array.from({ length: parts }, (_, index) => Math.floor((count + index) / parts))
}
