import { once } from 'node:events'
import { Agent } from 'node:http'
import { callerOf, json } from './http.ts'
import { listRequest, updateRequest } from './messages.ts'
import { openRaw } from './raw.ts'
import { apiKey } from './running-server.ts'

/** How often each kind of request came to its end. */
export type Counts = Record<string, number>

export interface MixedLoadOptions {
  readonly port: number
  /** How many callers there are, each with one request at a time. */
  readonly callers: number
  /** True for as long as the callers go on. */
  readonly goesOn: () => boolean
}

/** Valid requests, invalid ones, and ones whose callers leave at every step, until `goesOn` returns false. */
export async function mixedLoad({ port, callers, goesOn }: MixedLoadOptions): Promise<Counts> {
  const agent = new Agent({ keepAlive: true, maxSockets: callers })
  const kept = callerOf(port, { authorization: `Bearer ${apiKey}` }, agent)
  const alone = callerOf(port, { authorization: `Bearer ${apiKey}` })
  const list = listRequest()
  const update = updateRequest(5)
  const abort = async (bytes: string, after?: 'data'): Promise<void> => {
    const { socket, received } = await openRaw(port)
    socket.write(bytes)
    if (after !== undefined) await Promise.race([once(socket, after), received])
    socket.destroy()
    await received
  }
  const kinds: Record<string, (round: number) => Promise<unknown>> = {
    list: () => kept('GET', '/v1/inventory'),
    'list by a new connection': () => alone('GET', '/v1/inventory'),
    'list, compressed': () => kept('GET', '/v1/inventory', { headers: { 'accept-encoding': 'gzip' } }),
    update: (round) => kept('PATCH', `/v1/inventory/${1 + (round % 100)}`, json({ quantity: round })),
    'update of no pet': () => kept('PATCH', '/v1/inventory/-1', json({ quantity: 1 })),
    'faulty update': () => kept('PATCH', '/v1/inventory/1', json('{')),
    'too large an update': () => kept('PATCH', '/v1/inventory/1', json('x'.repeat(10_000))),
    'wrong key': () => callerOf(port)('GET', '/v1/inventory', { headers: { authorization: 'Bearer x' } }),
    'no HTTP': () => abort('garbage\r\n\r\n', 'data'),
    'aborted list': () => abort(list),
    'aborted in the middle of a list': () => abort(list, 'data'),
    'aborted pipeline': () => abort(list.repeat(20), 'data'),
    'aborted head': () => abort(`GET /v1/inventory HTTP/1.1\r\nHost`),
    'aborted body': () => abort(update.slice(0, -13)),
    'aborted update': () => abort(update),
  }
  const names = Object.keys(kinds)
  const counts: Counts = {}
  await Promise.all(
    Array.from({ length: callers }, async (_, caller) => {
      for (let round = caller; goesOn(); round++) {
        const name = names[round % names.length] ?? ''
        await kinds[name]?.(round).catch((cause) => {
          throw new Error(`The kind "${name}" has failed`, { cause })
        })
        counts[name] = (counts[name] ?? 0) + 1
      }
    }),
  )
  agent.destroy()
  return counts
}
