/** Prints the sizes and costs of a million entries that the pages in docs state. Run it with: npx tsx bench/sizes.ts */
import { randomInt } from 'node:crypto'
import { mkdir, rm } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import {
  type Database,
  listLimits,
  openDatabase,
  requestLimits,
  type TimeLimits,
} from '../src/database/pool.ts'
import { ENTRY_JSON } from '../src/inventory/columns.ts'
import { entriesOfLines, withChanges } from '../src/inventory/list/pieces.ts'
import { primaryListReads } from '../src/inventory/list/primary-reads.ts'
import type { ListState } from '../src/inventory/list/reads.ts'
import { Snapshot, snapshotOfLines } from '../src/inventory/list/snapshot.ts'
import { updateRepository } from '../src/inventory/updates/statements.ts'
import { onServer } from '../test/support/template.ts'
import { openBenchDatabase } from './database.ts'
import { machine } from './machine.ts'
import { median } from './statistics.ts'

const ENTRIES = 1_000_000
const BATCHES = 1000
const BATCH_SIZE = 100
const READS = 11

const directory = fileURLToPath(new URL('../.data/bench', import.meta.url))
await mkdir(directory, { recursive: true })
const bench = await openBenchDatabase(directory)
const openPool = (limits: TimeLimits): Database =>
  openDatabase({ url: bench.url, size: 1, limits, onConnectionLost: console.error })
const updates = openPool(requestLimits)
const lists = openPool(listLimits)

const ask = async (expression: string): Promise<number> => {
  const [row] = await onServer(bench.url, `SELECT (${expression})::float8 AS value`)
  return Number(row?.['value'])
}

/** The server's cost per unit of some work. */
interface Cost {
  readonly walBytes: number
  readonly cpuUs: number
}

async function costOf(count: number, work: () => Promise<void>): Promise<Cost> {
  const position = "pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')"
  const wal = await ask(position)
  const cpu = await bench.cpuSeconds()
  await work()
  const used = ((await bench.cpuSeconds())?.first ?? Number.NaN) - (cpu?.first ?? Number.NaN)
  return { walBytes: ((await ask(position)) - wal) / count, cpuUs: (used * 1e6) / count }
}

/** Sends batches of updates for random pets, as the service does. */
async function update(batches: number, size: number): Promise<void> {
  const { setQuantities } = updateRepository(updates)
  for (let batch = 0; batch < batches; batch++) {
    const petIds = new Set<number>()
    while (petIds.size < size) petIds.add(randomInt(1, ENTRIES + 1))
    const batchOfUpdates = Array.from(petIds, (petId) => ({
      petId: BigInt(petId),
      quantity: randomInt(1000),
    }))
    await setQuantities(batchOfUpdates, false)
  }
}

/** The duration of a read, and the server's CPU time for it. */
interface Read {
  readonly milliseconds: number
  readonly cpuUs: number
}

async function timed(read: () => Promise<void>): Promise<Read> {
  let milliseconds = Number.NaN
  const { cpuUs } = await costOf(1, async () => {
    const start = performance.now()
    await read()
    milliseconds = performance.now() - start
  })
  return { milliseconds, cpuUs }
}

/** Reads all entries once, and then several times the entries that a batch of updates has changed. */
async function readLists(): Promise<{ whole: Read; changes: Read }> {
  const reads = primaryListReads(lists)
  let state: ListState | undefined
  const readAll = async (): Promise<void> => {
    for await (const _ of reads.lines((source) => (state = source.state)));
  }
  await readAll()
  const whole = await timed(readAll)
  const taken: Read[] = []
  for (let round = 0; round < READS; round++) {
    await update(1, BATCH_SIZE)
    if (state === undefined) throw new Error('PostgreSQL cannot tell the changes of the list')
    const former = state
    taken.push(
      await timed(async () => {
        state = (await reads.changesSince(former, ENTRIES))?.state
      }),
    )
  }
  const medianOf = (value: keyof Read): number => median(taken.map((read) => read[value]))
  return { whole, changes: { milliseconds: medianOf('milliseconds'), cpuUs: medianOf('cpuUs') } }
}

/** Returns the CPU time of this process, in milliseconds, for compressing a list, and again after a change of one entry. */
async function compressionCpu(): Promise<{ first: number; afterChange: number }> {
  const reads = primaryListReads(lists)
  let state: ListState | undefined
  const former = await snapshotOfLines(reads.lines((source) => (state = source.state)))
  const cpuOf = async (snapshot: Snapshot): Promise<number> => {
    const start = process.cpuUsage()
    await snapshot.encoded('gzip')
    const { user, system } = process.cpuUsage(start)
    return (user + system) / 1000
  }
  const first = await cpuOf(former)
  await update(1, 1)
  const changes = state && (await reads.changesSince(state, 1))
  if (changes === undefined) throw new Error('PostgreSQL cannot tell the changes of the list')
  const latest = await withChanges(former.pieces, entriesOfLines(changes.lines))
  return { first, afterChange: await cpuOf(new Snapshot(latest, true)) }
}

const print = (name: string, value: number, unit: string): void =>
  console.log(
    `${name.padEnd(64)} ${value.toLocaleString('en', { maximumSignificantDigits: 3 }).padStart(8)} ${unit}`,
  )

try {
  for (const [name, value] of machine()) console.log(`${name}: ${value}`)
  console.log(`Database: ${bench.description}, ${ENTRIES.toLocaleString('en')} entries\n`)
  await bench.fill(ENTRIES)
  const shifted = '(SELECT pet_id + 10000000 AS pet_id, quantity, status FROM inventory) AS inventory'
  print(
    'an entry in a list, with an id of eight digits',
    await ask(`SELECT avg(length(${ENTRY_JSON}) + 1) FROM ${shifted}`),
    'bytes',
  )
  print('an entry in the table', (await ask("pg_table_size('inventory')")) / ENTRIES, 'bytes')
  print('an entry in the index', (await ask("pg_indexes_size('inventory')")) / ENTRIES, 'bytes')

  await onServer(bench.url, 'CHECKPOINT')
  const afterCheckpoint = await costOf(50 * BATCH_SIZE, () => update(50, BATCH_SIZE))
  print('WAL of an update right after a checkpoint, in a batch of 100', afterCheckpoint.walBytes, 'bytes')
  // Writes every page and leaves free space for new row versions in each, as after a day of updates and autovacuum.
  await onServer(bench.url, 'UPDATE inventory SET quantity = quantity')
  await onServer(bench.url, 'VACUUM inventory')
  const batched = await costOf(BATCHES * BATCH_SIZE, () => update(BATCHES, BATCH_SIZE))
  print('WAL of an update once its page was written, in a batch of 100', batched.walBytes, 'bytes')
  print('CPU of an update in a batch of 100', batched.cpuUs, 'µs')
  const single = await costOf(BATCHES, () => update(BATCHES, 1))
  print('WAL of a single update', single.walBytes, 'bytes')
  print('CPU of a single update', single.cpuUs, 'µs')

  const { whole, changes } = await readLists()
  print('reading all of a million entries', whole.milliseconds, 'ms')
  print('CPU of reading them', whole.cpuUs / 1000, 'ms')
  print('finding and reading 100 changes among a million entries', changes.milliseconds, 'ms')
  print('CPU of finding them', changes.cpuUs / 1000, 'ms')
  const compression = await compressionCpu()
  print('CPU of the service for compressing them in gzip', compression.first, 'ms')
  print('the same after a change of one', compression.afterChange, 'ms')
} finally {
  await updates.close()
  await lists.close()
  await bench.stop()
  await rm(directory, { recursive: true })
}
