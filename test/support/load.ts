import { Agent } from 'node:http'
import { setTimeout } from 'node:timers/promises'
import type { Test } from 'tap'
import { type Answer, callerOf, json } from './http.ts'
import type { Operation } from './linearizability.ts'
import { apiKey } from './running-server.ts'

/** The longest pause of a client between two requests, in milliseconds. */
const PAUSE = 10

/** A request of a client, and what became of it. */
export interface Exchange {
  readonly kind: 'update' | 'list'
  /** Sent as its X-Request-Id: the client's number, a dot, and the number of its request. */
  readonly id: string
  /** Undefined where the connection broke. */
  readonly answer: Answer | undefined
}

export interface LoadOptions {
  /** Where the service listens; the clients use the ports round-robin. */
  readonly ports: readonly number[]
  readonly clients: number
  /** Pets whose quantity is 0 at the beginning. */
  readonly pets: readonly number[]
  /** False where every request has a connection of its own. */
  readonly keepAlive?: boolean
}

/** Clients that list and update, each with one request after the other. */
export interface Load {
  /** All exchanges so far that ended with neither a 200 nor a 412. */
  readonly failures: readonly Exchange[]
  /** How many ended so. */
  readonly successes: number
  /** Resolves with the next exchange of that kind that ends so. */
  next(kind: Exchange['kind'], outcome: 'success' | 'failure'): Promise<Exchange>
  /** Resolves when every client has ended an exchange from now on. */
  answered(): Promise<void>
  /** Resolves when that many more exchanges have ended with a 200. */
  served(count: number): Promise<void>
  /** Lets every client finish its last request. */
  stop(): Promise<void>
  /** What was done with a pet so far. */
  historyOf(pet: number): readonly Operation[]
  /** Adds what was read by other means just now, when nothing was under way. */
  addRead(pet: number, quantity: number): void
}

interface Waiter {
  readonly kind: Exchange['kind']
  readonly succeeds: boolean
  readonly resolve: (exchange: Exchange) => void
}

/** True for a 200, and a 412 to an update whose expected quantity was not there. */
function isDecided(answer: Answer | undefined): boolean {
  return answer?.status === 200 || answer?.status === 412
}

/**
 * Starts the clients. Each update sets a quantity that no other one sets, three in ten only in the place of the quantity
 * that was seen last. A 412 is a read, too, of the quantity in its tag. Pets have the status `available`.
 */
export function startLoad(t: Test, { ports, clients, pets, keepAlive = true }: LoadOptions): Load {
  const histories = new Map(pets.map((pet): [number, Operation[]] => [pet, []]))
  const failures: Exchange[] = []
  /** What a client has last seen of each pet: what an update with a condition expects. */
  const seen = new Map<number, number>()
  let waiters: Waiter[] = []
  let successes = 0
  let unanswered: { readonly clients: Set<string>; readonly resolve: () => void }[] = []
  let events = 0
  let quantities = 0
  let stopping = false

  const note = (exchange: Exchange): void => {
    const succeeds = isDecided(exchange.answer)
    if (succeeds) successes++
    else failures.push(exchange)
    const [client = ''] = exchange.id.split('.')
    for (const { clients, resolve } of unanswered) {
      clients.delete(client)
      if (clients.size === 0) resolve()
    }
    unanswered = unanswered.filter(({ clients }) => clients.size > 0)
    const heard = waiters.filter((waiter) => waiter.kind === exchange.kind && waiter.succeeds === succeeds)
    waiters = waiters.filter((waiter) => !heard.includes(waiter))
    for (const { resolve } of heard) resolve(exchange)
  }

  const list = async (answered: Promise<Answer | undefined>): Promise<void> => {
    const began = ++events
    const answer = await answered
    const ended = ++events
    if (answer?.status !== 200) return
    const items: { petId: number; quantity: number }[] = JSON.parse(answer.text)
    for (const { petId, quantity } of items)
      histories.get(petId)?.push({ kind: 'read', quantity, began, ended })
    for (const { petId, quantity } of items) seen.set(petId, quantity)
  }

  const update = async (
    pet: number,
    quantity: number,
    expected: number | undefined,
    answered: Promise<Answer | undefined>,
  ): Promise<void> => {
    const began = ++events
    const answer = await answered
    const ended = isDecided(answer) ? ++events : Number.POSITIVE_INFINITY
    if (answer?.status === 412) {
      const current = Number.parseInt(answer.headers.etag?.slice(1) ?? '', 10)
      histories.get(pet)?.push({ kind: 'refused update', quantity, expected, began, ended })
      histories.get(pet)?.push({ kind: 'read', quantity: current, began, ended })
      seen.set(pet, current)
    } else {
      histories.get(pet)?.push({ kind: 'update', quantity, expected, began, ended })
    }
  }

  const client = async (number: number): Promise<void> => {
    const agent = new Agent({ keepAlive, maxSockets: 1 })
    const port = ports[number % ports.length] ?? 0
    for (let count = 0; !stopping; count++) {
      const id = `${number}.${count}`
      const send = callerOf(port, { authorization: `Bearer ${apiKey}`, 'x-request-id': id }, agent)
      const exchange = async (kind: Exchange['kind'], sent: Promise<Answer>): Promise<Answer | undefined> => {
        const answer = await sent.catch(() => undefined)
        note({ kind, id, answer })
        return answer
      }
      if (Math.random() < 0.5) {
        await list(exchange('list', send('GET', '/v1/inventory')))
      } else {
        const pet = pets[Math.floor(Math.random() * pets.length)] ?? 0
        const quantity = ++quantities
        const expected = Math.random() < 0.3 ? seen.get(pet) : undefined
        const message = json({ quantity })
        const condition = expected === undefined ? {} : { 'if-match': `"${expected}-available"` }
        const headers = { ...message.headers, ...condition }
        const sent = send('PATCH', `/v1/inventory/${pet}`, { ...message, headers })
        await update(pet, quantity, expected, exchange('update', sent))
      }
      await setTimeout(Math.random() * PAUSE)
    }
    agent.destroy()
  }

  const running = Promise.all(Array.from({ length: clients }, (_, number) => client(number)))
  const next: Load['next'] = (kind, outcome) =>
    new Promise((resolve) => waiters.push({ kind, succeeds: outcome === 'success', resolve }))
  const stop = async (): Promise<void> => {
    stopping = true
    await running
  }
  t.teardown(() => {
    stopping = true
  })
  return {
    failures,
    get successes() {
      return successes
    },
    next,
    answered: () =>
      new Promise((resolve) => {
        const numbers = Array.from({ length: clients }, (_, number) => String(number))
        unanswered.push({ clients: new Set(numbers), resolve })
      }),
    async served(count) {
      for (const target = successes + count; successes < target; ) {
        await Promise.race([next('update', 'success'), next('list', 'success')])
      }
    },
    stop,
    historyOf: (pet) => histories.get(pet) ?? [],
    addRead(pet, quantity) {
      histories.get(pet)?.push({ kind: 'read', quantity, began: ++events, ended: ++events })
    },
  }
}
