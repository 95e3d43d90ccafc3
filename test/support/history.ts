import { Agent } from 'node:http'
import { setTimeout } from 'node:timers/promises'
import type { Test } from 'tap'
import { until } from './eventually.ts'
import { callerOf, json } from './http.ts'

/** A line of `inventory history --json`. */
export interface RecordedChange {
  readonly petId: number
  readonly oldQuantity: number | null
  readonly newQuantity: number | null
  readonly oldStatus: string | null
  readonly newStatus: string | null
  readonly key: string | null
  readonly keyId: string | null
  readonly role: string
  readonly requestId: string | null
}

/** Parses the output of `inventory history --json`. */
export function changesIn(text: string): RecordedChange[] {
  return text.split('\n').flatMap((line) => (line === '' ? [] : [JSON.parse(line)]))
}

interface Entry {
  readonly quantity: number
  readonly status: string
}

/** An update that was answered with a 200. */
interface Acknowledged {
  readonly requestId: string
  readonly petId: number
  readonly quantity: number
}

interface Writers {
  readonly acknowledged: readonly Acknowledged[]
  /** Updates whose outcome is unknown, by their request id. */
  readonly unknown: ReadonlySet<string>
  /** Resolves when that many updates are acknowledged. */
  reached(count: number): Promise<void>
  stop(): Promise<void>
}

interface WriterOptions {
  readonly ports: readonly number[]
  readonly apiKey: string
  readonly callers: number
  readonly pets: readonly number[]
}

/** Starts callers, each of which sets quantities that no other one sets, one after the other, until the test ends. */
export function startWriters(t: Test, { ports, apiKey, callers, pets }: WriterOptions): Writers {
  const acknowledged: Acknowledged[] = []
  const unknown = new Set<string>()
  const agent = new Agent({ keepAlive: true })
  let quantity = 0
  let isStopping = false
  const write = async (caller: number): Promise<void> => {
    const send = callerOf(ports[caller % ports.length] ?? 0, { authorization: `Bearer ${apiKey}` }, agent)
    while (!isStopping) {
      const update = { requestId: `update-${++quantity}`, petId: pets[quantity % pets.length] ?? 0, quantity }
      const message = json({ quantity })
      const headers = { ...message.headers, 'x-request-id': update.requestId }
      const answer = await send('PATCH', `/v1/inventory/${update.petId}`, { ...message, headers }).catch(
        () => {},
      )
      if (answer?.status === 200) acknowledged.push(update)
      else {
        unknown.add(update.requestId)
        await setTimeout(20)
      }
    }
  }
  const ended = Promise.all(Array.from({ length: callers }, (_, caller) => write(caller)))
  const stop = async (): Promise<void> => {
    isStopping = true
    await ended
    agent.destroy()
  }
  t.teardown(stop)
  return {
    acknowledged,
    unknown,
    reached: (count) => until(`${count} updates`, () => acknowledged.length >= count),
    stop,
  }
}

/** Returns where a change, oldest first, does not begin with what the former one of its pet has left, or the last is not the entry. */
export function chainErrors(
  changes: readonly RecordedChange[],
  first: ReadonlyMap<number, Entry>,
  last: ReadonlyMap<number, Entry>,
): string[] {
  const errors: string[] = []
  const entries = new Map(first)
  const textOf = (quantity?: number | null, status?: string | null): string =>
    `${quantity ?? '-'} ${status ?? '-'}`
  for (const change of changes) {
    const former = entries.get(change.petId)
    if (textOf(change.oldQuantity, change.oldStatus) !== textOf(former?.quantity, former?.status))
      errors.push(`${JSON.stringify(change)} after ${JSON.stringify(former)}`)
    if (change.newQuantity === null || change.newStatus === null) entries.delete(change.petId)
    else entries.set(change.petId, { quantity: change.newQuantity, status: change.newStatus })
  }
  for (const petId of new Set([...entries.keys(), ...last.keys()])) {
    const [entry, stored] = [entries.get(petId), last.get(petId)]
    if (textOf(entry?.quantity, entry?.status) !== textOf(stored?.quantity, stored?.status))
      errors.push(`pet ${petId} is ${JSON.stringify(stored)}, not ${JSON.stringify(entry)}`)
  }
  return errors
}
