import { setTimeout } from 'node:timers/promises'
import pg from 'pg'
import t, { type Test } from 'tap'
import { ApiError } from '../../../src/contract/errors.ts'
import { DatabaseUnavailableError } from '../../../src/database/errors/errors.ts'
import type { Condition } from '../../../src/inventory/condition.ts'
import type { InventoryItem } from '../../../src/inventory/schemas.ts'
import { InventoryStatistics } from '../../../src/inventory/statistics.ts'
import { sendBatch } from '../../../src/inventory/updates/batch.ts'
import { MAX_BATCH_SIZE, PendingUpdates } from '../../../src/inventory/updates/pending-updates.ts'
import type { QuantityUpdate, Written } from '../../../src/inventory/updates/quantity-update.ts'
import { UpdateQueue } from '../../../src/inventory/updates/queue.ts'
import { RoundTrip } from '../../../src/inventory/updates/round-trip.ts'
import type { UpdateRepository } from '../../../src/inventory/updates/statements.ts'
import { until } from '../../support/eventually.ts'

/** A statement that the queue has sent, which the test answers. */
interface Statement {
  /** What it sets, in words: `1=5` is the quantity 5 for pet 1. */
  readonly text: string
  readonly asksForRules: boolean
  /** Stores all of it but for some pets; `as` says what is stored instead. */
  store(options?: {
    except?: readonly number[]
    unmet?: readonly number[]
    as?: number
    hasRules?: boolean
  }): void
  refuse(code: string): void
  fail(error: Error): void
}

/** A repository whose statements do what the test says. */
class ScriptedRepository implements UpdateRepository {
  readonly updateConnections: number
  /** The statements that nobody has looked at yet. */
  readonly statements: Statement[] = []
  /** How many there were. */
  sent = 0
  locked: readonly number[] | Error = []
  existing: readonly number[] | Error = []
  /** What the answer about existing entries waits for. */
  existingAnswer: Promise<void> = Promise.resolve()
  commits: 'wait' | 'get through' | Error | Promise<boolean> = 'get through'
  readonly asked: string[] = []

  /** With 3 connections, two batches may be in flight whatever the round trip, and one retry; with 2, one batch. */
  constructor(updateConnections = 3) {
    this.updateConnections = updateConnections
  }

  setQuantities(updates: readonly QuantityUpdate[], asksForRules: boolean): Promise<Written> {
    this.sent++
    return new Promise((resolve, reject) => {
      this.statements.push({
        text: updates
          .map(({ petId, quantity, condition }) => `${petId}=${quantity}${condition ? ' if' : ''}`)
          .join(' '),
        asksForRules,
        store: ({ except = [], unmet = [], as, hasRules = false } = {}) => {
          const stored = updates.filter(({ petId }) => ![...except, ...unmet].includes(Number(petId)))
          const entries = stored.map(({ petId, quantity }): [bigint, InventoryItem] => [
            petId,
            { petId, quantity: as ?? quantity, status: 'sold' },
          ])
          resolve({
            entries: new Map(entries),
            unmet: new Map(unmet.map((petId) => [BigInt(petId), '0-sold'])),
            hasRules,
          })
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

  async existingAmong(petIds: readonly bigint[]): Promise<Set<bigint>> {
    this.asked.push(`existing ${petIds.join(' ')}`)
    await this.existingAnswer
    if (this.existing instanceof Error) throw this.existing
    const existing = this.existing.map(BigInt)
    return new Set(petIds.filter((petId) => existing.includes(petId)))
  }

  async commitsWait(): Promise<boolean> {
    this.asked.push('commits')
    if (this.commits instanceof Error) throw this.commits
    if (this.commits instanceof Promise) return this.commits
    return this.commits === 'wait'
  }

  /** The next statement; it ends the test if there is none soon, or another one than expected. */
  async next(t: Test, text: string): Promise<Statement> {
    await until(`the statement ${text}`, () => this.statements.length > 0)
    const statement = this.statements.shift()
    if (statement?.text !== text) throw new Error(`The statement is ${statement?.text}, not ${text}`)
    t.pass(text)
    return statement
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
  return ['08006', '55P03', '57014', '40P01', '25006'].includes(code)
    ? new DatabaseUnavailableError(error)
    : error
}

interface Queue {
  readonly statistics: InventoryStatistics
  /** Sets a quantity; returns, in words, what the caller is told. */
  set(petId: number, quantity: number, condition?: Condition): Promise<string>
}

// Each test takes less than a second. One that waits for an outcome that never comes ends here.
t.setTimeout(60_000)

const patient = { wait: 60_000, overdue: 60_000, check: 5, probe: 5 }

function queueOf(t: Test, repository: UpdateRepository, times = patient, roundTrip = new RoundTrip()): Queue {
  // A test that fails may leave updates without an outcome, whose timer would keep the process running.
  const timers = t.capture(globalThis, 'setInterval', setInterval)
  t.teardown(() => {
    for (const timer of timers()) if ('returned' in timer) clearInterval(timer.returned)
  })
  const statistics = new InventoryStatistics()
  const queue = new UpdateQueue(repository, statistics, undefined, times, roundTrip)
  return {
    statistics,
    set: (petId, quantity, condition) =>
      queue.set({ petId: BigInt(petId), quantity, condition }).then(
        (item) => (item === undefined ? 'no entry' : `${item.petId}=${item.quantity}`),
        (error: unknown) => {
          if (error instanceof ApiError) return `${error.status} ${error.message}`
          return error instanceof Error ? error.name : 'unknown'
        },
      ),
  }
}

t.test('a single update goes out at once, those that arrive meanwhile as one batch', async (t) => {
  const repository = new ScriptedRepository()
  const { set, statistics } = queueOf(t, repository)
  const first = set(1, 11)
  await null
  t.equal(repository.sent, 1, 'in the same iteration of the event loop')
  const one = await repository.next(t, '1=11')
  t.notOk(one.asksForRules, 'it supersedes none')
  const second = set(2, 22)
  const two = await repository.next(t, '2=22')
  const others = [set(5, 55), set(3, 33), set(4, 44)]
  await repository.nothing(t)
  t.equal(statistics.waitingUpdates, 3, 'two are in flight, without a round trip that would ask for more')
  one.store()
  t.equal(await first, '1=11')
  const batch = await repository.next(t, '3=33 4=44 5=55')
  t.equal(statistics.waitingUpdates, 0)
  batch.store()
  two.store()
  t.strictSame(await Promise.all([second, ...others]), ['2=22', '5=55', '3=33', '4=44'])
})

t.test('among several callers, an update waits for those that arrive in the same iteration', async (t) => {
  const repository = new ScriptedRepository(2)
  // On a busy machine, the check for late updates would send one before the end of its iteration, which this is about.
  const { set } = queueOf(t, repository, { ...patient, check: 60_000 })
  const first = [set(1, 11), set(2, 22)]
  const one = await repository.next(t, '1=11 2=22')
  one.store()
  await Promise.all(first)
  const third = set(3, 33)
  await null
  t.equal(repository.sent, 1, 'nothing is sent yet')
  const fourth = set(4, 44)
  const two = await repository.next(t, '3=33 4=44')
  two.store()
  t.strictSame(await Promise.all([third, fourth]), ['3=33', '4=44'])
  const fifth = set(5, 55)
  const three = await repository.next(t, '5=55')
  three.store()
  await fifth
  void set(6, 66)
  await null
  t.equal(repository.sent, 4, 'a single caller does not wait')
  const four = await repository.next(t, '6=66')
  four.store()
})

t.test('a long round trip has more batches in flight, up to the connections', async (t) => {
  const pass = stopClock(t)
  const repository = new ScriptedRepository(9)
  const { set } = queueOf(t, repository)
  const slow = set(1, 1)
  const statement = await repository.next(t, '1=1')
  pass(20)
  statement.store()
  await slow
  const tooMany = [1, 2, 3, 4, 5, 6, 7, 8].map((petId) => set(petId, 10))
  const batch = await repository.next(t, '1=10 2=10 3=10 4=10 5=10 6=10 7=10 8=10')
  pass(20)
  batch.store()
  await Promise.all(tooMany)
  const answers = []
  const statements: Statement[] = []
  for (let petId = 1; petId <= 7; petId++) answers.push(set(petId, petId))
  for (let petId = 1; petId <= 7; petId++) statements.push(await repository.next(t, `${petId}=${petId}`))
  const waiting = set(8, 8)
  await repository.nothing(t)
  t.equal(repository.sent, 9, 'two connections are left to rows that are locked')
  for (const sent of statements) sent.store()
  const last = await repository.next(t, '8=8')
  last.store()
  await Promise.all([...answers, waiting])
})

t.test('over a network, each of up to four updates is sent at once', async (t) => {
  const repository = new ScriptedRepository(9)
  const roundTrip = new RoundTrip()
  const { set } = queueOf(t, repository, patient, roundTrip)
  roundTrip.observe(0.1)
  const local = [set(1, 1)]
  const one = await repository.next(t, '1=1')
  local.push(set(2, 2))
  const two = await repository.next(t, '2=2')
  local.push(set(3, 3), set(4, 4))
  await repository.nothing(t)
  // Quick statements take longer from now on; the shortest of the last seconds was one of a moment ago.
  while (roundTrip.quick < 2) roundTrip.observe(3)
  one.store()
  const three = await repository.next(t, '3=3')
  const four = await repository.next(t, '4=4')
  const few = [set(1, 10)]
  const again = await repository.next(t, '1=10')
  const many = [set(5, 5), set(6, 6)]
  await repository.nothing(t)
  for (const statement of [two, three, four]) statement.store()
  await Promise.all(local)
  for (const text of ['5=5', '6=6']) {
    const statement = await repository.next(t, text)
    statement.store()
  }
  again.store()
  await Promise.all([...few, ...many])
  const five = [1, 2, 3, 4, 5].map((petId) => set(petId, petId))
  const batch = await repository.next(t, '1=1 2=2 3=3 4=4 5=5')
  batch.store()
  await Promise.all(five)
})

t.test('no pet is in two statements at once, and its updates are decided in their order', async (t) => {
  const repository = new ScriptedRepository()
  const { set } = queueOf(t, repository)
  const first = set(1, 1)
  const statement = await repository.next(t, '1=1')
  const others = [set(1, 2), set(1, 3)]
  await repository.nothing(t)
  statement.store()
  t.equal(await first, '1=1')
  const next = await repository.next(t, '1=3')
  t.ok(next.asksForRules)
  next.store()
  t.strictSame(await Promise.all(others), ['1=2', '1=3'], 'each has its own quantity')
})

t.test('an update is not forgotten when an older batch of its pet ends after it has arrived', async (t) => {
  const repository = new ScriptedRepository()
  const { set } = queueOf(t, repository)
  let answer = (): void => {}
  repository.existingAnswer = new Promise((resolve) => {
    answer = resolve
  })
  const older = [set(1, 1), set(2, 2)]
  const batch = await repository.next(t, '1=1 2=2')
  batch.store({ except: [2] })
  t.equal(await older[0], '1=1')
  await until('the request about pet 2', () => repository.asked.length > 0)
  // Meanwhile, the queue looks for updates that have waited for too long, and finds pet 1 without any.
  await repository.nothing(t)
  const other = set(3, 3)
  const statement = await repository.next(t, '3=3')
  const newer = set(1, 4)
  await repository.nothing(t)
  answer()
  t.equal(await older[1], 'no entry')
  const last = await repository.next(t, '1=4')
  last.store()
  t.equal(await newer, '1=4')
  statement.store()
  t.equal(await other, '3=3')
})

t.test('where triggers change what is stored, every answer says what is stored', async (t) => {
  const repository = new ScriptedRepository()
  const { set } = queueOf(t, repository)
  const both = [set(1, 500), set(1, 50)]
  const statement = await repository.next(t, '1=50')
  statement.store({ hasRules: true })
  t.strictSame(await Promise.all(both), ['1=50', '1=50'])
  const changed = set(1, 500)
  const capped = await repository.next(t, '1=500')
  capped.store({ as: 100, hasRules: true })
  t.equal(await changed, '1=100')
})

t.test('a pet without an entry, and one whose row a trigger passes over', async (t) => {
  const repository = new ScriptedRepository()
  repository.existing = [2, 3]
  const { set } = queueOf(t, repository)
  const answers = [set(1, 1), set(2, 2), set(3, 3), set(4, 4)]
  const batch = await repository.next(t, '1=1 2=2 3=3 4=4')
  batch.store({ except: [1, 2, 3] })
  t.equal(await answers[0], 'no entry')
  t.equal(await answers[3], '4=4')
  t.strictSame(repository.asked, ['existing 1 2 3'])
  const again = await repository.next(t, '2=2 3=3')
  const newer = set(3, 30)
  again.store({ except: [2] })
  t.equal(await answers[2], '3=3', 'an import had replaced it')
  const replaced = await repository.next(t, '3=30')
  replaced.store({ except: [3] })
  const stored = await repository.next(t, '3=30')
  stored.store()
  t.equal(await newer, '3=30', 'and again')
  t.match(await answers[1], /^400 The database rejects this quantity/)
  repository.existing = new DatabaseUnavailableError(new Error('gone'))
  const lost = set(1, 1)
  const last = await repository.next(t, '1=1')
  last.store({ except: [1] })
  t.equal(await lost, 'DatabaseUnavailableError')
})

t.test('a locked row waits for itself, and newer updates of its pet behind it', async (t) => {
  const repository = new ScriptedRepository()
  repository.locked = [7]
  const { set, statistics } = queueOf(t, repository)
  const answers = [set(7, 71), set(8, 8)]
  const batch = await repository.next(t, '7=71 8=8')
  const newer = set(7, 72)
  batch.refuse('55P03')
  const others = await repository.next(t, '8=8')
  t.strictSame(repository.asked, ['locked 7 8'])
  const retry = await repository.next(t, '7=72')
  others.store()
  t.equal(await answers[1], '8=8')
  const newest = set(7, 73)
  await repository.nothing(t)
  retry.refuse('55P03')
  const again = await repository.next(t, '7=73')
  t.equal(statistics.waitingUpdates, 0)
  again.store()
  t.strictSame(await Promise.all([answers[0], newer, newest]), ['7=71', '7=72', '7=73'])
  const ordinary = [set(7, 74), set(8, 80)]
  const together = await repository.next(t, '7=74 8=80')
  together.store()
  t.strictSame(await Promise.all(ordinary), ['7=74', '8=80'], 'it is an ordinary row again')
})

t.test('locked rows are retried round-robin, two at a time, beside batches', async (t) => {
  const repository = new ScriptedRepository(9)
  repository.locked = [1, 2, 3]
  const { set } = queueOf(t, repository)
  const answers = [set(1, 1), set(2, 2), set(3, 3)]
  const batch = await repository.next(t, '1=1 2=2 3=3')
  batch.refuse('55P03')
  const one = await repository.next(t, '1=1')
  const two = await repository.next(t, '2=2')
  await repository.nothing(t)
  const free = set(4, 4)
  const other = await repository.next(t, '4=4')
  other.store()
  t.equal(await free, '4=4')
  one.refuse('55P03')
  const three = await repository.next(t, '3=3')
  three.store()
  two.store()
  const last = await repository.next(t, '1=1')
  last.store()
  t.strictSame(await Promise.all(answers), ['1=1', '2=2', '3=3'])
})

t.test('a locked table is retried as a batch, and is the reason of a 503', async (t) => {
  const pass = stopClock(t)
  for (const [locked, reason] of [
    [refusal('55P03'), 'Another transaction has locked the whole inventory.'],
    [[], 'Another transaction has locked the whole inventory.'],
    [refusal('57014'), 'The database is too busy.'],
  ] as const) {
    const repository = new ScriptedRepository()
    repository.locked = locked
    const { set } = queueOf(t, repository, { ...patient, wait: 500 })
    const answers = [set(1, 1), set(2, 2)]
    const batch = await repository.next(t, '1=1 2=2')
    batch.refuse('55P03')
    const again = await repository.next(t, '1=1 2=2')
    pass(550)
    again.refuse('55P03')
    for (const answer of await Promise.all(answers))
      t.equal(answer.indexOf(`503 ${reason} Nothing was changed.`), 0)
    t.equal(repository.sent, 2, 'nothing is sent once the time is up')
    t.strictSame(repository.asked, ['locked 1 2'], 'nor asked')
  }
})

t.test('a refused batch is retried in halves until the bad update is alone', async (t) => {
  const repository = new ScriptedRepository()
  const { set } = queueOf(t, repository)
  const answers = Array.from({ length: 8 }, (_, index) => set(index + 1, 1))
  let statements = 0
  const run = Promise.all(answers)
  let isOver = false
  void run.then(() => {
    isOver = true
  })
  while (!isOver) {
    const statement = repository.statements.shift()
    if (statement?.text.includes('3=1')) statement.refuse('22003')
    else statement?.store()
    if (statement) statements++
    await setTimeout(1)
  }
  const told = await run
  t.equal(told[2], 'error', 'what PostgreSQL has said')
  t.strictSame(
    told.filter((answer) => answer !== 'error'),
    [1, 2, 4, 5, 6, 7, 8].map((petId) => `${petId}=1`),
  )
  t.ok(statements <= 8, `${statements} statements`)
})

t.test(
  'updates that arrive after a refusal are in no half of the batch, and later in whole ones',
  async (t) => {
    const repository = new ScriptedRepository()
    const { set } = queueOf(t, repository)
    const answers = [set(1, 1), set(2, 2)]
    const batch = await repository.next(t, '1=1 2=2')
    answers.push(set(3, 3), set(1, 10), set(2, 20))
    batch.refuse('22003')
    const halves = [await repository.next(t, '1=10'), await repository.next(t, '2=20')]
    answers.push(set(1, 100), set(2, 200))
    for (const half of halves) half.store()
    const whole = await repository.next(t, '1=100 2=200 3=3')
    whole.store()
    t.strictSame(await Promise.all(answers), ['1=1', '2=2', '3=3', '1=10', '2=20', '1=100', '2=200'])
  },
)

t.test('several updates of a refused pet are retried in halves, the older one first', async (t) => {
  const repository = new ScriptedRepository()
  const { set } = queueOf(t, repository)
  const older = [set(1, 1), set(1, 2)]
  const newer = [set(1, 3), set(1, 4)]
  const other = set(2, 2)
  const batch = await repository.next(t, '1=4 2=2')
  batch.refuse('23514')
  const alone = await repository.next(t, '1=4')
  const beside = await repository.next(t, '2=2')
  beside.store()
  t.equal(await other, '2=2')
  const busy = set(3, 3)
  const third = await repository.next(t, '3=3')
  const next = set(4, 4)
  alone.refuse('23514')
  const half = await repository.next(t, '1=2')
  third.store()
  t.equal(await busy, '3=3')
  const fourth = await repository.next(t, '4=4')
  fourth.store()
  t.equal(await next, '4=4', 'a pet that is not refused is not sent together with it')
  newer.push(set(1, 5))
  half.store()
  t.strictSame(await Promise.all(older), ['1=1', '1=2'])
  const rest = await repository.next(t, '1=5')
  rest.refuse('40P01')
  t.strictSame(await Promise.all(newer), Array(3).fill('DatabaseUnavailableError'), 'a deadlock concerns all')
})

t.test('a batch with pets on a server that cannot be reached is retried individually', async (t) => {
  const repository = new ScriptedRepository()
  const { set } = queueOf(t, repository)
  const answers = Array.from({ length: 8 }, (_, index) => set(index + 1, 1))
  const batch = await repository.next(t, '1=1 2=1 3=1 4=1 5=1 6=1 7=1 8=1')
  batch.refuse('08006')
  for (let petId = 1; petId <= 8; petId++) {
    const single = await repository.next(t, `${petId}=1`)
    if (petId % 2 === 0) single.refuse('08006')
    else single.store()
  }
  t.strictSame(
    await Promise.all(answers),
    [1, 2, 3, 4, 5, 6, 7, 8].map((petId) => (petId % 2 === 0 ? 'DatabaseUnavailableError' : `${petId}=1`)),
  )
})

t.test('what may have been committed is never sent again', async (t) => {
  for (const end of [
    (statement: Statement) => statement.refuse('57014'),
    (statement: Statement) => statement.refuse('40003'),
    (statement: Statement) => statement.fail(new Error('Connection terminated unexpectedly')),
    (statement: Statement) => statement.fail(new Error('Query read timeout')),
  ]) {
    const repository = new ScriptedRepository()
    const { set } = queueOf(t, repository)
    const answers = [set(1, 1), set(2, 2)]
    const batch = await repository.next(t, '1=1 2=2')
    const newer = set(1, 3)
    end(batch)
    t.notMatch(await Promise.all(answers), [/=/, /=/])
    const next = await repository.next(t, '1=3')
    next.store()
    t.equal(await newer, '1=3')
    t.strictSame(repository.asked, [], 'it says nothing about other commits')
  }
})

t.test('with more pets than fit into a batch, those that have waited for longest come first', async (t) => {
  const repository = new ScriptedRepository(2)
  const { set } = queueOf(t, repository)
  const pets = Array.from({ length: MAX_BATCH_SIZE + 1 }, (_, index) => index + 1)
  const textOf = (petIds: readonly number[], quantity: number): string =>
    petIds.map((petId) => `${petId}=${quantity}`).join(' ')
  const answers = pets.map((petId) => set(petId, 1))
  const first = await repository.next(t, textOf(pets.slice(0, -1), 1))
  answers.push(...pets.slice(0, -1).map((petId) => set(petId, 2)))
  first.store()
  const last = pets.at(-1)
  const second = await repository.next(t, `${textOf(pets.slice(0, -2), 2)} ${last}=1`)
  second.store()
  const third = await repository.next(t, textOf(pets.slice(-2, -1), 2))
  third.store()
  t.ok((await Promise.all(answers)).every((answer) => answer.includes('=')))
})

t.test('what concerns every update is not retried in halves', async (t) => {
  const repository = new ScriptedRepository()
  const { set } = queueOf(t, repository)
  const answers = [set(1, 1), set(2, 2)]
  const batch = await repository.next(t, '1=1 2=2')
  batch.refuse('25006')
  t.strictSame(await Promise.all(answers), ['DatabaseUnavailableError', 'DatabaseUnavailableError'])
  t.equal(repository.sent, 1)
})

t.test('an update that has waited for too long and found no row is rejected', async (t) => {
  const pass = stopClock(t)
  const repository = new ScriptedRepository()
  const { set } = queueOf(t, repository, { ...patient, wait: 100 })
  const late = set(1, 1)
  const statement = await repository.next(t, '1=1')
  pass(150)
  statement.store({ except: [1] })
  t.match(await late, /^503 The database is too busy\. Nothing was changed/)
  t.strictSame(repository.asked, [], 'nothing is asked')
  t.equal(repository.sent, 1)
})

t.test('a row that may still be locked delays no other pets', async (t) => {
  const pass = stopClock(t)
  const repository = new ScriptedRepository()
  const { set } = queueOf(t, repository, { ...patient, wait: 500 })
  const late = set(1, 1)
  const one = await repository.next(t, '1=1')
  const slow = set(2, 2)
  const two = await repository.next(t, '2=2')
  pass(550)
  const others = [set(1, 11), set(3, 3)]
  one.refuse('55P03')
  t.match(await late, /^503 The database is too busy\. Nothing was changed/)
  const batch = await repository.next(t, '3=3')
  const retry = await repository.next(t, '1=11')
  t.strictSame(repository.asked, [], 'there was no time to ask')
  for (const statement of [two, batch, retry]) statement.store()
  t.strictSame(await Promise.all([slow, ...others]), ['2=2', '1=11', '3=3'])
})

t.test('of the pets of a batch with a locked row, those with time left are asked about', async (t) => {
  const repository = new ScriptedRepository()
  repository.locked = [2]
  const told: string[] = []
  const petWith = (petId: bigint, ...arrivals: readonly number[]): PendingUpdates => {
    const pet = new PendingUpdates(petId, new InventoryStatistics())
    for (const arrivedAt of arrivals) {
      const tell = (): number => told.push(`${petId} of ${arrivedAt}`)
      pet.add({ petId, quantity: arrivedAt, arrivedAt, context: undefined, resolve: tell, reject: tell })
    }
    pet.take()
    return pet
  }
  const pets = [petWith(1n, 1), petWith(2n, 2, 7), petWith(3n, 8)]
  const sent = sendBatch(repository, pets, (pet) => {
    for (const { reject } of pet.removeInFlightBefore(5)) reject('late')
    return pet.inFlight.length > 0
  })
  const statement = await repository.next(t, '1=1 2=7 3=8')
  statement.refuse('55P03')
  await sent
  t.strictSame(told, ['1 of 1', '2 of 2'])
  t.strictSame(repository.asked, ['locked 2 3'])
  t.strictSame(
    pets.map(({ state, waitsFor, waiting }) => [state, waitsFor, waiting]),
    [
      ['locked', 'statement', 0],
      ['locked', 'row lock', 1],
      ['ready', 'statement', 1],
    ],
  )
})

t.test('a 503 names a lock only if it is the reason', async (t) => {
  const pass = stopClock(t)
  const repository = new ScriptedRepository()
  repository.locked = [1]
  const { set } = queueOf(t, repository, { ...patient, wait: 500 })
  const first = set(1, 1)
  const statement = await repository.next(t, '1=1')
  statement.refuse('55P03')
  const retry = await repository.next(t, '1=1')
  const second = set(1, 2)
  retry.store()
  t.equal(await first, '1=1')
  const hanging = await repository.next(t, '1=2')
  const late = set(1, 3)
  pass(550)
  t.match(await late, /^503 The database is too busy/)
  hanging.store()
  t.equal(await second, '1=2')
})

t.test('no timer runs once every update has its outcome', async (t) => {
  const pass = stopClock(t)
  const repository = new ScriptedRepository()
  const stopped = t.capture(globalThis, 'clearInterval', clearInterval)
  const { set } = queueOf(t, repository, { ...patient, wait: 100 })
  const hanging = set(1, 1)
  const statement = await repository.next(t, '1=1')
  const other = set(2, 2)
  const two = await repository.next(t, '2=2')
  const late = [set(1, 2), set(3, 3)]
  pass(150)
  for (const answer of late) t.match(await answer, /^503/)
  t.equal(stopped().length, 0)
  statement.store()
  two.store()
  t.strictSame(await Promise.all([hanging, other]), ['1=1', '2=2'])
  await until('the end of the timer', () => stopped().length > 0)
  const again = set(3, 3)
  const last = await repository.next(t, '3=3')
  const tooLate = set(3, 4)
  pass(150)
  t.match(await tooLate, /^503/, 'and it runs again')
  last.store()
  t.equal(await again, '3=3')
})

t.test('an update that has waited for too long is rejected and never sent', async (t) => {
  const pass = stopClock(t)
  const repository = new ScriptedRepository()
  repository.locked = [1, 3]
  const { set, statistics } = queueOf(t, repository, { ...patient, wait: 100 })
  const blocked = [set(1, 1), set(3, 3)]
  const statement = await repository.next(t, '1=1 3=3')
  const late = set(1, 2)
  pass(150)
  t.match(await late, /^503 The database is too busy\. Nothing was changed/, 'while another is in flight')
  t.equal(statistics.waitingUpdates, 0)
  statement.refuse('55P03')
  t.match(await blocked[0], /^503/)
  t.strictSame(repository.asked, [], 'nothing is asked for those that are too late')
  const young = set(1, 4)
  const first = await repository.next(t, '1=4')
  first.refuse('55P03')
  const retry = await repository.next(t, '1=4')
  pass(150)
  retry.refuse('55P03')
  t.match(await young, /^503 Another transaction has locked the entry\. Nothing was changed/)
  t.equal(repository.sent, 3)
})

t.test('a second statement is sent only for the updates of a pet that have time', async (t) => {
  const pass = stopClock(t)
  const repository = new ScriptedRepository()
  repository.locked = [1]
  const { set } = queueOf(t, repository, { ...patient, wait: 100 })
  const first = set(1, 1)
  const statement = await repository.next(t, '1=1')
  const old = set(1, 2)
  pass(60)
  const young = set(1, 3)
  statement.store()
  t.equal(await first, '1=1')
  const both = await repository.next(t, '1=3')
  pass(60)
  both.refuse('55P03')
  t.match(await old, /^503 .* Nothing was changed/)
  t.strictSame(repository.asked, ['locked 1'], 'for the younger one')
  const last = await repository.next(t, '1=3')
  last.store()
  t.equal(await young, '1=3')
})

t.test('a retry without an answer counts like a batch', async (t) => {
  const pass = stopClock(t)
  const repository = new ScriptedRepository()
  repository.locked = [1]
  const { set } = queueOf(t, repository, { wait: 60_000, overdue: 500, check: 5, probe: 5 })
  const hanging = [set(1, 1)]
  const refused = await repository.next(t, '1=1')
  refused.refuse('55P03')
  const statements = [await repository.next(t, '1=1')]
  for (const petId of [2, 3]) {
    hanging.push(set(petId, petId))
    statements.push(await repository.next(t, `${petId}=${petId}`))
  }
  pass(500)
  await until('the suspension', () => repository.asked.includes('commits'))
  const probe = set(4, 4)
  const sent = await repository.next(t, '4=4')
  sent.store()
  t.equal(await probe, '4=4')
  const asked = repository.asked.length
  for (const statement of statements) statement.fail(new Error('Query read timeout'))
  t.strictSame(await Promise.all(hanging), Array(3).fill('DatabaseUnavailableError'))
  const after = set(5, 5)
  const next = await repository.next(t, '5=5')
  next.store()
  t.equal(await after, '5=5')
  t.equal(repository.asked.length, asked, 'its end does not suspend the queue again')
})

t.test('three statements without an answer suspend the queue until commits get through', async (t) => {
  const pass = stopClock(t)
  const repository = new ScriptedRepository()
  repository.commits = 'wait'
  const { set } = queueOf(t, repository, { wait: 60_000, overdue: 500, check: 5, probe: 0 })
  const hanging = []
  const statements: Statement[] = []
  for (let petId = 1; petId <= 3; petId++) {
    hanging.push(set(petId, petId))
    statements.push(await repository.next(t, `${petId}=${petId}`))
    pass(500)
  }
  await until('the suspension', () => repository.asked.length > 0)
  t.match(await set(4, 4), /^503 The database does not confirm changes/)
  repository.commits = new Error('away')
  t.match(await set(5, 5), /^503 The database does not answer/)
  t.equal(repository.sent, 3)
  repository.commits = 'get through'
  const probe = set(6, 6)
  const one = await repository.next(t, '6=6')
  const asked = repository.asked.length
  const other = set(7, 7)
  await repository.nothing(t)
  one.store()
  t.equal(await probe, '6=6')
  const next = await repository.next(t, '7=7')
  next.store()
  t.equal(await other, '7=7')
  for (const statement of statements) statement.fail(new Error('Query read timeout'))
  t.strictSame(
    await Promise.all(hanging),
    hanging.map(() => 'DatabaseUnavailableError'),
  )
  const after = [set(8, 8), set(9, 9)]
  const batch = await repository.next(t, '8=8 9=9')
  batch.store()
  await Promise.all(after)
  t.equal(repository.asked.length, asked, 'those that had suspended it change nothing, nor do their ends')
})

/** A queue that a statement without an answer has suspended. */
async function suspended(
  t: Test,
  repository: ScriptedRepository,
  pass: (ms: number) => void,
  times: { wait: number; probe: number },
): Promise<Queue> {
  const queue = queueOf(t, repository, { ...times, overdue: 30, check: 5 })
  const hanging = queue.set(1, 1)
  const statement = await repository.next(t, '1=1')
  pass(30)
  statement.fail(new Error('Query read timeout'))
  t.equal(await hanging, 'DatabaseUnavailableError')
  return queue
}

t.test('a suspended queue asks at most three times at once', async (t) => {
  const pass = stopClock(t)
  const repository = new ScriptedRepository()
  let fail = (_: Error): void => {}
  repository.commits = new Promise((_resolve, reject) => {
    fail = reject
  })
  const { set } = await suspended(t, repository, pass, { wait: 500, probe: 5 })
  const late = set(2, 2)
  for (const count of [1, 2, 3]) {
    await until(`${count} questions`, () => repository.asked.length >= count)
    pass(5)
  }
  await repository.nothing(t)
  pass(500)
  t.match(await late, /^503 The database is too busy/)
  t.strictSame(repository.asked, ['commits', 'commits', 'commits'])
  fail(new Error('away'))
  await repository.nothing(t)
  repository.commits = 'get through'
  const probe = set(3, 3)
  const statement = await repository.next(t, '3=3')
  statement.store()
  t.equal(await probe, '3=3')
})

t.test('an answer that comes after another one has ended the suspension changes nothing', async (t) => {
  const pass = stopClock(t)
  const repository = new ScriptedRepository()
  let fail = (_: Error): void => {}
  repository.commits = new Promise((_resolve, reject) => {
    fail = reject
  })
  const { set } = await suspended(t, repository, pass, { wait: 60_000, probe: 5 })
  const probe = set(2, 2)
  await until('the question', () => repository.asked.length > 0)
  repository.commits = 'get through'
  pass(5)
  const statement = await repository.next(t, '2=2')
  const waiting = set(3, 3)
  fail(new Error('away'))
  await repository.nothing(t)
  statement.store()
  const next = await repository.next(t, '3=3')
  next.store()
  t.strictSame(await Promise.all([probe, waiting]), ['2=2', '3=3'])
})

t.test('a suspended queue does not ask again before the time between two probes', async (t) => {
  const pass = stopClock(t)
  const repository = new ScriptedRepository()
  repository.commits = 'wait'
  const { set } = await suspended(t, repository, pass, { wait: 100, probe: 60_000 })
  t.match(await set(2, 2), /^503 The database does not confirm changes/)
  const late = set(3, 3)
  pass(150)
  t.match(await late, /^503 The database is too busy/)
  t.strictSame(repository.asked, ['commits'])
})

t.test('locked rows wait until a probe is answered, by a refusal, too', async (t) => {
  const pass = stopClock(t)
  const repository = new ScriptedRepository()
  repository.locked = [1, 2]
  const { set } = queueOf(t, repository, { wait: 60_000, overdue: 500, check: 5, probe: 5 })
  const locked = [set(1, 1), set(2, 2)]
  const batch = await repository.next(t, '1=1 2=2')
  const hanging = set(3, 3)
  const statement = await repository.next(t, '3=3')
  pass(500)
  statement.fail(new Error('Query read timeout'))
  t.equal(await hanging, 'DatabaseUnavailableError')
  const lost = set(4, 4)
  const probe = await repository.next(t, '4=4')
  batch.refuse('55P03')
  await repository.nothing(t)
  const others = [set(5, 5), set(6, 6)]
  probe.fail(new Error('Connection terminated unexpectedly'))
  t.equal(await lost, 'DatabaseUnavailableError')
  const second = await repository.next(t, '5=5 6=6')
  await repository.nothing(t)
  second.refuse('22003')
  for (const text of ['5=5', '6=6', '1=1', '2=2']) {
    const next = await repository.next(t, text)
    next.store()
  }
  t.strictSame(await Promise.all([...locked, ...others]), ['1=1', '2=2', '5=5', '6=6'])
})

t.test('if only updates of locked rows wait, one of them is the probe', async (t) => {
  const pass = stopClock(t)
  const repository = new ScriptedRepository()
  repository.locked = [1, 2]
  const { set } = queueOf(t, repository, { wait: 60_000, overdue: 500, check: 5, probe: 5 })
  const locked = [set(1, 1), set(2, 2)]
  const batch = await repository.next(t, '1=1 2=2')
  const hanging = set(3, 3)
  const statement = await repository.next(t, '3=3')
  pass(510)
  statement.fail(new Error('Query read timeout'))
  t.equal(await hanging, 'DatabaseUnavailableError')
  batch.refuse('55P03')
  const probe = await repository.next(t, '1=1')
  await repository.nothing(t)
  probe.store()
  const next = await repository.next(t, '2=2')
  next.store()
  t.strictSame(await Promise.all(locked), ['1=1', '2=2'])
})

t.test('a refusal is an answer, however long it takes', async (t) => {
  const pass = stopClock(t)
  const repository = new ScriptedRepository()
  const { set } = queueOf(t, repository, { wait: 60_000, overdue: 30, check: 5, probe: 5 })
  const refused = set(1, 1)
  const statement = await repository.next(t, '1=1')
  pass(30)
  statement.refuse('22003')
  t.equal(await refused, 'error')
  const next = set(2, 2)
  const two = await repository.next(t, '2=2')
  two.store()
  t.equal(await next, '2=2')
  t.strictSame(repository.asked, [])
})

t.test('a probe without an answer suspends the queue again', async (t) => {
  const pass = stopClock(t)
  const repository = new ScriptedRepository()
  const { set } = queueOf(t, repository, { wait: 60_000, overdue: 30, check: 5, probe: 0 })
  const first = set(1, 1)
  const statement = await repository.next(t, '1=1')
  pass(30)
  statement.fail(new Error('Query read timeout'))
  t.equal(await first, 'DatabaseUnavailableError')
  const probe = set(2, 2)
  const hanging = await repository.next(t, '2=2')
  t.strictSame(repository.asked, ['commits'], 'one that ends without an answer is enough')
  repository.commits = 'wait'
  pass(30)
  await until('the suspension', () => repository.asked.length > 1)
  t.match(await set(3, 3), /^503 The database does not confirm/)
  hanging.store()
  t.equal(await probe, '2=2')
})

t.test('an update with a condition is decided after those before it, and alone', async (t) => {
  const repository = new ScriptedRepository()
  repository.locked = [1]
  const { set } = queueOf(t, repository)
  const condition = { anyOf: ['2-sold'] }
  const answers = [
    set(1, 1),
    set(1, 2),
    set(1, 3, condition),
    set(1, 4, condition),
    set(1, 5),
    set(1, 6),
    set(2, 7),
  ]
  const first = await repository.next(t, '1=2 2=7')
  first.store()
  const second = await repository.next(t, '1=3 if')
  second.refuse('55P03')
  const again = await repository.next(t, '1=3 if')
  again.store()
  const third = await repository.next(t, '1=4 if')
  third.store({ unmet: [1] })
  const last = await repository.next(t, '1=6')
  last.store()
  const told = await Promise.all(answers)
  t.match(told[3], /^412 .* Nothing was changed/)
  t.strictSame(told.toSpliced(3, 1), ['1=1', '1=2', '1=3', '1=5', '1=6', '2=7'])
})

t.test('a pet is asked about or put back, not both, if its time runs out just then', async (t) => {
  const repository = new ScriptedRepository()
  let answer = (): void => {}
  repository.existingAnswer = new Promise((resolve) => {
    answer = resolve
  })
  const pet = new PendingUpdates(1n, new InventoryStatistics())
  let told: unknown = 'nothing'
  const tell = (outcome: unknown): void => {
    told = outcome
  }
  pet.add({ petId: 1n, quantity: 5, arrivedAt: 0, context: undefined, resolve: tell, reject: tell })
  pet.take()
  const times = [true]
  const sent = sendBatch(repository, [pet], () => times.shift() ?? false)
  const statement = await repository.next(t, '1=5')
  statement.store({ except: [1] })
  await until('the question', () => repository.asked.length > 0)
  t.equal(pet.state, 'in flight', 'so that no other batch takes its updates meanwhile')
  answer()
  await sent
  t.equal(told, undefined, 'its caller is told that there is no entry')
})

t.test('an update with a condition whose outcome is unknown is not sent again', async (t) => {
  const repository = new ScriptedRepository()
  const { set } = queueOf(t, repository)
  const lost = set(1, 3, { anyOf: ['2-sold'] })
  const statement = await repository.next(t, '1=3 if')
  statement.fail(new Error('Query read timeout'))
  t.equal(await lost, 'DatabaseUnavailableError')
  await repository.nothing(t)
})
