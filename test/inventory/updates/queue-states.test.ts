import { setTimeout } from 'node:timers/promises'
import pg from 'pg'
import t, { type Test } from 'tap'
import { ApiError } from '../../../src/contract/errors.ts'
import { DatabaseUnavailableError } from '../../../src/database/errors.ts'
import type { Condition } from '../../../src/inventory/entry/condition.ts'
import type { InventoryItem } from '../../../src/inventory/entry/schemas.ts'
import { InventoryStatistics } from '../../../src/inventory/statistics.ts'
import type { QuantityUpdate } from '../../../src/inventory/updates/quantity-update.ts'
import { UpdateQueue } from '../../../src/inventory/updates/queue.ts'
import { MAX_BATCH_SIZE, type UpdateRepository } from '../../../src/inventory/updates/repository.ts'
import { until } from '../../support/eventually.ts'

/** A statement that the queue has sent, which the test answers. */
interface Statement {
  /** What it sets, in words: `1=5` is the quantity 5 for pet 1. */
  readonly text: string
  /** Stores all of it except for some pets, for which it returns no row. */
  store(...except: readonly number[]): void
  refuse(code: string): void
  fail(error: Error): void
}

/** A repository whose statements do what the test says. */
class ScriptedRepository implements UpdateRepository {
  readonly updateConnections: number
  readonly #batchSize: number
  /** The statements that the test has not taken yet. */
  readonly statements: Statement[] = []
  /** How many there were. */
  sent = 0
  locked: readonly number[] | Error = []
  /** The tags of the pets that have an entry, or why they cannot be read. */
  tags: Readonly<Record<number, string>> | Error = {}
  readonly asked: string[] = []

  /** With 3 connections, two batches may be in flight, however far the database is, and one retry; with 2, one batch. */
  constructor(updateConnections = 3, batchSize = MAX_BATCH_SIZE) {
    this.updateConnections = updateConnections
    this.#batchSize = batchSize
  }

  maxBatchSize(): number {
    return this.#batchSize
  }

  setQuantities(updates: readonly QuantityUpdate[]): Promise<Map<bigint, InventoryItem>> {
    this.sent++
    return new Promise((resolve, reject) => {
      this.statements.push({
        text: updates
          .map(({ petId, quantity, condition }) => `${petId}=${quantity}${condition ? ' if' : ''}`)
          .join(' '),
        store: (...except) => {
          const stored = updates.filter(({ petId }) => !except.includes(Number(petId)))
          resolve(new Map(stored.map(({ petId, quantity }) => [petId, { petId, quantity, status: 'sold' }])))
        },
        refuse: (code) => reject(refusal(code)),
        fail: (error) => reject(new DatabaseUnavailableError(error)),
      })
    })
  }

  async lockedAmong(petIds: readonly bigint[]): Promise<Set<bigint>> {
    this.asked.push(`locked ${petIds.join(' ')}`)
    if (this.locked instanceof Error) throw this.locked
    const locked = this.locked.map(BigInt)
    return new Set(petIds.filter((petId) => locked.includes(petId)))
  }

  async tagsOf(petIds: readonly bigint[]): Promise<Map<bigint, string>> {
    this.asked.push(`tags ${petIds.join(' ')}`)
    if (this.tags instanceof Error) throw this.tags
    const tags = Object.entries(this.tags).map(([petId, tag]): [bigint, string] => [BigInt(petId), tag])
    return new Map(tags.filter(([petId]) => petIds.includes(petId)))
  }

  /** The next statement; it ends the test if there is none soon, or another one than expected. */
  async next(t: Test, text: string): Promise<Statement> {
    await until(`the statement ${text}`, () => this.statements.length > 0)
    const statement = this.statements.shift()
    if (statement?.text !== text) throw new Error(`The statement is ${statement?.text}, not ${text}`)
    t.pass(text)
    return statement
  }

  /** Stores each of these statements as soon as it is sent. */
  async storeAll(t: Test, ...texts: readonly string[]): Promise<void> {
    for (const text of texts) {
      const statement = await this.next(t, text)
      statement.store()
    }
  }

  /** Holds that nothing is sent for a few iterations of the event loop. */
  async nothing(t: Test): Promise<void> {
    await setTimeout(20)
    t.strictSame(
      this.statements.map(({ text }) => text),
      [],
      'nothing is sent',
    )
  }
}

/** Stops the clock, so that no test depends on the speed of the machine. Returns a function that moves it on. */
function stopClock(t: Test): (ms: number) => void {
  let now = 0
  t.capture(performance, 'now', () => now)
  return (ms) => {
    now += ms
  }
}

/** PostgreSQL's refusal of a statement, as the pool raises it. */
function refusal(code: string): Error {
  const error = new pg.DatabaseError('refused', 0, 'error')
  error.code = code
  return ['55P03', '57014', '40P01', '25006'].includes(code) ? new DatabaseUnavailableError(error) : error
}

interface Queue {
  readonly statistics: InventoryStatistics
  /** Sets a quantity; returns, in words, what the caller is told. */
  set(petId: number, quantity: number, condition?: Condition, key?: string): Promise<string>
}

// Each test takes less than a second. One that waits for an outcome that never comes ends here.
t.setTimeout(60_000)

const patient = { wait: 60_000, check: 5 }

function queueOf(t: Test, repository: UpdateRepository, times = patient): Queue {
  // A test that fails may leave updates without an outcome, whose timer would keep the process running.
  const timers = t.capture(globalThis, 'setInterval', setInterval)
  t.teardown(() => {
    for (const timer of timers()) if ('returned' in timer) clearInterval(timer.returned)
  })
  const statistics = new InventoryStatistics()
  const queue = new UpdateQueue(repository, statistics, undefined, times)
  return {
    statistics,
    set: (petId, quantity, condition, name = '') =>
      queue.set({ petId: BigInt(petId), quantity, condition, caller: { key: { name }, requestId: '' } }).then(
        (item) => (item === undefined ? 'no entry' : `${item.petId}=${item.quantity}`),
        (error: unknown) => {
          if (error instanceof ApiError) return `${error.status} ${error.message}`
          return error instanceof Error ? error.name : 'unknown'
        },
      ),
  }
}

t.test('if the table is distributed, each update is a statement, on as many connections', async (t) => {
  const repository = new ScriptedRepository(9, 1)
  const { set } = queueOf(t, repository)
  const answers = [1, 2, 3, 4, 5, 6, 7, 8].map((petId) => set(petId, petId))
  const first = await repository.next(t, '1=1')
  const others = []
  for (let petId = 2; petId <= 7; petId++) others.push(await repository.next(t, `${petId}=${petId}`))
  await repository.nothing(t)
  first.store()
  await repository.storeAll(t, '8=8')
  for (const statement of others) statement.store()
  await Promise.all(answers)
})

t.test('an update without a row is a 404, a 412, or is sent three times', async (t) => {
  const repository = new ScriptedRepository()
  repository.tags = { 2: '2-sold', 3: '3-sold', 4: '4-sold' }
  const { set } = queueOf(t, repository)
  const answers = [
    set(1, 1, { anyOf: ['1-sold'] }),
    set(2, 2, { anyOf: ['1-sold'] }),
    set(3, 3, { noneOf: ['2-sold'] }),
    set(4, 4),
    set(5, 5),
  ]
  const batch = await repository.next(t, '1=1 if 2=2 if 3=3 if 4=4 5=5')
  batch.store(1, 2, 3, 4)
  t.match(await answers[4], '5=5')
  const second = await repository.next(t, '3=3 if 4=4')
  t.equal(await answers[0], 'no entry')
  t.match(await answers[1], /^412 .* Nothing was changed/)
  second.store(4)
  t.equal(await answers[2], '3=3', 'another transaction had changed it')
  const third = await repository.next(t, '4=4')
  const newer = set(5, 50)
  await repository.storeAll(t, '5=50')
  t.equal(await newer, '5=50', 'pets that are decided do not wait')
  third.store(4)
  t.match(await answers[3], /^400 The database rejects this quantity/)
  t.equal(repository.asked.length, 3)
  repository.tags = new DatabaseUnavailableError(new Error('gone'))
  const lost = set(1, 1)
  const last = await repository.next(t, '1=1')
  last.store(1)
  t.equal(await lost, 'DatabaseUnavailableError')
})

t.test('a row that may still be locked delays no other pets', async (t) => {
  const pass = stopClock(t)
  const repository = new ScriptedRepository()
  const { set } = queueOf(t, repository, { ...patient, wait: 500 })
  const late = [set(1, 1), set(2, 2)]
  const batch = await repository.next(t, '1=1 2=2')
  pass(550)
  const others = [set(1, 11), set(3, 3)]
  const three = await repository.next(t, '3=3')
  batch.refuse('55P03')
  for (const answer of await Promise.all(late)) t.match(answer, /^503 Another transaction has locked/)
  const retry = await repository.next(t, '1=11')
  const beside = set(4, 4)
  await repository.storeAll(t, '4=4')
  t.strictSame(repository.asked, [], 'there was no time to ask')
  retry.store()
  three.store()
  t.strictSame(await Promise.all([...others, beside]), ['1=11', '3=3', '4=4'])
})

t.test('what may have been committed, or concerns every update, is never sent again', async (t) => {
  for (const end of [
    (statement: Statement) => statement.refuse('57014'),
    (statement: Statement) => statement.refuse('40003'),
    (statement: Statement) => statement.refuse('25006'),
    (statement: Statement) => statement.fail(new Error('Connection terminated unexpectedly')),
    (statement: Statement) => statement.fail(new Error('PostgreSQL did not respond in time')),
  ]) {
    const repository = new ScriptedRepository()
    const { set } = queueOf(t, repository)
    const answers = [set(1, 1), set(2, 2, { anyOf: ['1-sold'] })]
    const batch = await repository.next(t, '1=1 2=2 if')
    const newer = set(1, 3)
    end(batch)
    t.notMatch(await Promise.all(answers), [/=/, /=/])
    await repository.storeAll(t, '1=3')
    t.equal(await newer, '1=3')
    t.strictSame(repository.asked, [])
  }
})

t.test('a refusal that one update of a batch may have caused fails only that one', async (t) => {
  for (const code of ['23514', '40P01']) {
    const repository = new ScriptedRepository()
    const { set } = queueOf(t, repository)
    const answers = [set(1, 1), set(2, 2)]
    const batch = await repository.next(t, '1=1 2=2')
    batch.refuse(code)
    const first = await repository.next(t, '1=1')
    first.refuse(code)
    await repository.storeAll(t, '2=2')
    t.match(await Promise.all(answers), [/error$/i, '2=2'], code)
  }
})

t.test('one bad update among 500 takes few statements, and no update of others waits for them', async (t) => {
  const repository = new ScriptedRepository()
  const { set } = queueOf(t, repository)
  const answers = Array.from({ length: 500 }, (_, index) => set(index, 1, undefined, 'bad'))
  const answer = (statement: Statement): void => {
    if (/\b499=/.test(statement.text)) statement.refuse('23514')
    else statement.store()
  }
  await until('the batch', () => repository.statements.length > 0)
  repository.statements.splice(0).forEach(answer)
  for (let petId = 1000; ; petId++) {
    await until('a part of the batch', () => repository.statements.length > 0)
    const [part] = repository.statements.splice(0, 1)
    const other = set(petId, 1, undefined, 'good')
    await repository.storeAll(t, `${petId}=1`)
    t.equal(await other, `${petId}=1`, 'while a part is in flight')
    if (part) answer(part)
    if (part?.text === '499=1') break
  }
  for (let left = 7; left > 0; left--) repository.statements.splice(0).forEach(answer)
  const outcomes = await Promise.all(answers)
  t.equal(outcomes.filter((outcome) => outcome !== 'error').length, 499)
  t.ok(repository.sent < 60, `${repository.sent} statements, half of them of the other key`)
})

t.test(
  'updates of a key that has only bad ones are sent alone, and delay none of the same pets',
  async (t) => {
    const repository = new ScriptedRepository()
    const { set } = queueOf(t, repository)
    const first = set(1, 5, undefined, 'bad')
    const refused = await repository.next(t, '1=5')
    refused.refuse('23514')
    await first
    const bad = [1, 2, 3].map((petId) => set(petId, 5, undefined, 'bad'))
    const alone = await repository.next(t, '1=5')
    const good = [1, 2, 3].map((petId) => set(petId, 1, undefined, 'good'))
    await repository.storeAll(t, '1=1 2=1 3=1')
    t.strictSame(await Promise.all(good), ['1=1', '2=1', '3=1'])
    await repository.nothing(t)
    alone.store()
    const together = await repository.next(t, '2=5 3=5')
    together.store()
    t.strictSame(await Promise.all(bad), ['1=5', '2=5', '3=5'], 'what is stored is sent together again')
  },
)

t.test('an update that has waited for too long is rejected and never sent', async (t) => {
  const pass = stopClock(t)
  const repository = new ScriptedRepository()
  const stopped = t.capture(globalThis, 'clearInterval', clearInterval)
  const { set, statistics } = queueOf(t, repository, { ...patient, wait: 100 })
  const hanging = set(1, 1)
  const statement = await repository.next(t, '1=1')
  const late = set(1, 2)
  pass(150)
  t.match(await late, /^503 The database is too busy\. Nothing was changed/, 'while another is in flight')
  t.equal(statistics.waitingUpdates, 0)
  t.equal(stopped().length, 0)
  const young = set(1, 3)
  statement.store(1)
  t.match(await hanging, /^503 The database is too busy\. Nothing was changed/, 'there was no row to update')
  t.strictSame(repository.asked, [], 'and none is asked about')
  await repository.storeAll(t, '1=3')
  t.equal(await young, '1=3')
  t.equal(repository.sent, 2)
  await until('the end of the timer', () => stopped().length > 0)
})
