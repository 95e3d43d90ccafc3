import { Agent } from 'node:http'
import { setTimeout } from 'node:timers/promises'
import type { Test } from 'tap'
import { until } from './eventually.ts'
import { type Answer, createSender, json, type Send } from './http.ts'
import { findContradiction, type Operation } from './linearizability.ts'
import type { OwnServer } from './own-server.ts'
import { apiKey } from './program.ts'

/** The longest pauses of a client after a request that succeeded, and after one that failed, in milliseconds. */
const [PAUSE, PAUSE_AFTER_FAILURE] = [10, 100]

/** A request of a client, and what became of it. */
export interface Exchange {
  readonly kind: 'update' | 'list'
  /** Sent as its X-Request-Id: the client's number, a dot, and the number of its request. */
  readonly id: string
  /** Of an update: the pet, and the quantity that it sets. */
  readonly pet?: number
  readonly quantity?: number
  /** Undefined where the connection broke. */
  readonly answer?: Answer
  /** The code of the error with which it broke. */
  readonly error?: string
}

interface LoadOptions {
  /** Where the service listens; the clients use the ports round-robin. */
  readonly ports: readonly number[]
  readonly clients: number
  /** Pets whose quantity is 0 at the beginning. */
  readonly pets: readonly number[]
  /** False where every request has a connection of its own. */
  readonly keepAlive?: boolean
  /** The key that they present. */
  readonly key?: string
}

/** Clients that list and update, each with one request after the other. */
export type Load = ReturnType<typeof startLoad>

/**
 * Starts the clients. Each update sets a quantity that no other one sets, three in ten only in the place of what was seen last.
 * A 412 is a read, too, of the quantity in its tag.
 */
export function startLoad(t: Test, { ports, clients, pets, keepAlive = true, key = apiKey }: LoadOptions) {
  const histories = new Map(pets.map((pet): [number, Operation[]] => [pet, []]))
  /** All updates so far that were answered with a 200. */
  const updates: Exchange[] = []
  /** All exchanges so far that ended with neither a whole list, an update, nor a 412 that shows another entry than was expected. */
  const failures: Exchange[] = []
  const counts = { update: { success: 0, failure: 0 }, list: { success: 0, failure: 0 } }
  /** How many exchanges each client has ended. */
  const ends = Array.from({ length: clients }, () => 0)
  /** The tag of what was last seen of each pet: what an update with a condition expects. */
  const seen = new Map<number, string>()
  let events = 0
  let quantities = 0
  let isStopping = false
  const successes = (): number => counts.update.success + counts.list.success

  /** Returns whether the exchange has succeeded. */
  const note = (exchange: Exchange, isSuccess: boolean): boolean => {
    counts[exchange.kind][isSuccess ? 'success' : 'failure']++
    if (!isSuccess) failures.push(exchange)
    else if (exchange.kind === 'update' && exchange.answer?.status === 200) updates.push(exchange)
    return isSuccess
  }

  const client = async (_: unknown, number: number): Promise<void> => {
    const agent = new Agent({ keepAlive, maxSockets: 1 })
    for (let count = 0; !isStopping; count++) {
      const id = `${number}.${count}`
      const headers = { authorization: `Bearer ${key}`, 'x-request-id': id }
      const send = createSender(ports[number % ports.length] ?? 0, headers, agent)
      const isSuccess = await (Math.random() < 0.5 ? list(send, id) : update(send, id))
      ends[number] = count + 1
      await setTimeout(Math.random() * (isSuccess ? PAUSE : PAUSE_AFTER_FAILURE))
    }
    agent.destroy()
  }

  /** Waits for the outcome of a request. Returns it, with the places of both among all events. */
  const settle = async (sent: Promise<Answer>) => {
    const began = ++events
    const outcome: Pick<Exchange, 'answer' | 'error'> = await sent.then(
      (answer) => ({ answer }),
      (error) => ({ error: String(error.code ?? error) }),
    )
    return { began, ended: ++events, outcome }
  }

  const list = async (send: Send, id: string): Promise<boolean> => {
    const { began, ended, outcome } = await settle(send('GET', '/v1/inventory'))
    const items: { petId: number; quantity: number; status: string }[] =
      outcome.answer?.status === 200 ? JSON.parse(outcome.answer.text) : []
    const found = items.filter(({ petId }) => histories.has(petId))
    const isInOrder = items.every(({ petId }, index) => petId > (items[index - 1]?.petId ?? 0))
    for (const { petId, quantity, status } of found) {
      histories.get(petId)?.push({ kind: 'read', quantity, began, ended })
      seen.set(petId, `"${quantity}-${status}"`)
    }
    return note({ kind: 'list', id, ...outcome }, found.length === pets.length && isInOrder)
  }

  const update = async (send: Send, id: string): Promise<boolean> => {
    const pet = pets[Math.floor(Math.random() * pets.length)] ?? 0
    const quantity = ++quantities
    const tag = Math.random() < 0.3 ? seen.get(pet) : undefined
    const expected = tag === undefined ? undefined : parseQuantity(tag)
    const message = json({ quantity }, tag === undefined ? {} : { 'if-match': tag })
    const { began, ended, outcome } = await settle(send('PATCH', `/v1/inventory/${pet}`, message))
    const { status, headers: { etag = '' } = {} } = outcome.answer ?? {}
    // A refusal that has the tag that the update expected is no decision.
    const isRefused = status === 412 && etag !== tag
    const isDecided = isRefused || status === 200
    const history = histories.get(pet)
    if (isRefused) {
      history?.push({ kind: 'read', quantity: parseQuantity(etag), began, ended })
      seen.set(pet, etag)
    } else history?.push({ kind: 'update', quantity, expected, began, ended: isDecided ? ended : Infinity })
    return note({ kind: 'update', id, pet, quantity, ...outcome }, isDecided)
  }

  const running = Promise.all(Array.from({ length: clients }, client))
  t.teardown(() => {
    isStopping = true
  })
  return {
    updates,
    failures,
    /** How many exchanges have succeeded: all others. */
    get successes() {
      return successes()
    },
    /** Resolves when the next exchange of that kind has ended so. */
    next(kind: Exchange['kind'], outcome: 'success' | 'failure') {
      const before = counts[kind][outcome]
      return until(`the ${outcome} of a ${kind}`, () => counts[kind][outcome] > before)
    },
    /** Resolves when every client has ended an exchange from now on. */
    answered() {
      const before = [...ends]
      return until('every client', () => ends.every((count, at) => count > (before[at] ?? 0)))
    },
    /** Resolves when that many more exchanges have succeeded. */
    served(count: number) {
      const target = successes() + count
      return until(`${count} answers`, () => successes() >= target)
    },
    /** Lets every client finish its last request. */
    async stop() {
      isStopping = true
      await running
    },
    /** What was done with a pet so far. */
    readHistory: (pet: number): readonly Operation[] => histories.get(pet) ?? [],
  }
}

/** The quantity in the tag of an entry. */
function parseQuantity(tag: string): number {
  return Number.parseInt(tag.slice(1), 10)
}

/** Whether an exchange ended with a 503 that says when to try again. */
const saysWhen = ({ answer }: Exchange): boolean =>
  answer?.status === 503 && /^[1-9]\d*$/.test(answer.headers['retry-after'] ?? '')

/**
 * Shows that all responses to the clients fit one order of the requests, that what is stored is its end, and that every failure
 * was a 503 that says when to try again, or another one that is expected.
 */
export async function expectOneHistory(
  t: Test,
  load: Load,
  pets: readonly number[],
  stored: OwnServer,
  isExpected: (failure: Exchange) => boolean = () => false,
) {
  await load.stop()
  const rows = await stored.query('SELECT pet_id, quantity FROM inventory')
  const quantities = new Map(rows.map((row) => [Number(row['pet_id']), Number(row['quantity'])]))
  for (const pet of pets) {
    const [began, ended] = [Number.MAX_SAFE_INTEGER - 1, Number.MAX_SAFE_INTEGER]
    const last: Operation = { kind: 'read', quantity: quantities.get(pet) ?? Number.NaN, began, ended }
    t.equal(findContradiction([...load.readHistory(pet), last], 0), undefined, `pet ${pet}`)
  }
  const others = load.failures.filter((failure) => !saysWhen(failure) && !isExpected(failure))
  t.strictSame(others, [], 'every other failure was a 503 that says when to try again')
  t.comment(`${load.successes} requests were served, ${load.failures.length} failed`)
}
