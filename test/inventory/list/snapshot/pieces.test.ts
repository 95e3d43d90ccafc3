import fc from 'fast-check'
import { pino } from 'pino'
import t from 'tap'
import { listLimits, openDatabase } from '../../../../src/database/pool/pool.ts'
import { inventoryList } from '../../../../src/inventory/list/cached-list.ts'
import { ActiveDownloads } from '../../../../src/inventory/list/delivery/active-downloads.ts'
import {
  ENTRIES_PER_PIECE,
  type Piece,
  pieceOf,
  withChanges,
} from '../../../../src/inventory/list/snapshot/pieces.ts'
import { Snapshot } from '../../../../src/inventory/list/snapshot/snapshot.ts'
import { inventoryRepository } from '../../../../src/inventory/repository.ts'
import { InventoryStatistics } from '../../../../src/inventory/statistics.ts'
import { testDatabase } from '../../../support/database.ts'

type Items = ReadonlyMap<bigint, number>

const entriesOf = (items: Items): string[] =>
  [...items]
    .sort(([one], [other]) => (one < other ? -1 : 1))
    .map(([petId, quantity]) => `{"petId":${petId},"quantity":${quantity},"note":"é","status":"sold"}`)

/** The pieces of a list that is read in full. */
function piecesOf(items: Items): Piece[] {
  const entries = entriesOf(items)
  const pieces: Piece[] = []
  for (let at = 0; at < entries.length; at += ENTRIES_PER_PIECE) {
    const own = entries.slice(at, at + ENTRIES_PER_PIECE)
    pieces.push(pieceOf({ text: own.join(), count: own.length }, pieces.length, undefined))
  }
  return pieces
}

const textOf = (pieces: readonly Piece[]): string =>
  Buffer.concat([...new Snapshot(pieces).chunks]).toString()

/** Ids of every length and sign, with neighbors, and ids that are close together. */
const petId = fc.oneof(
  fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
  fc.bigInt({ min: -50n, max: 50n }),
  fc.bigInt({ min: 1n, max: 20_000n }),
)

const changesOf = fc.array(fc.tuple(petId, fc.nat({ max: 2_147_483_647 })), { maxLength: 60 })

t.test('pieces with changes are those of the changed list, whatever the changes', async (t) => {
  const run = async (size: number, rounds: [bigint, number][][]): Promise<void> => {
    const items = new Map<bigint, number>()
    for (let id = 1n; id <= BigInt(size); id++) items.set(id * 3n, 1)
    let pieces = piecesOf(items)
    for (const round of rounds) {
      const changes = new Map(round)
      for (const [id, quantity] of changes) items.set(id, quantity)
      pieces = (await withChanges(pieces, entriesOf(changes).join('\n'))) ?? []
      const whole = piecesOf(items)
      const seen = pieces.map(({ digest, firstId, count }) => `${digest} ${firstId} ${count}`)
      if (seen.join() !== whole.map(({ digest, firstId, count }) => `${digest} ${firstId} ${count}`).join())
        throw new Error('The pieces differ from those of the whole list')
      if (textOf(pieces) !== `[${entriesOf(items).join()}]`)
        throw new Error('Joined, the pieces are not the list')
    }
  }
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(0, 1, 3, 200, ENTRIES_PER_PIECE, 3000),
      fc.array(changesOf, { minLength: 1, maxLength: 4 }),
      run,
    ),
    { numRuns: 300 },
  )
  t.pass()
})

t.test('pieces that do not change are the same objects', async (t) => {
  const items = new Map(Array.from({ length: 10_000 }, (_, index) => [BigInt(index), 1]))
  const pieces = piecesOf(items)
  const line = '{"petId":5000,"quantity":2,"note":"é","status":"sold"}'
  const changed = (await withChanges(pieces, line)) ?? []
  t.equal(changed.length, pieces.length)
  t.equal(changed.filter((piece) => !pieces.includes(piece)).length, 1)
  const same = (await withChanges(changed, line)) ?? []
  t.strictSame(same, changed)
  t.ok(
    same.every((piece) => changed.includes(piece)),
    'an entry that is written with the same values',
  )
})

t.test('more than a piece of new entries makes the list be read again', async (t) => {
  const added = new Map(Array.from({ length: 1 + ENTRIES_PER_PIECE }, (_, index) => [BigInt(-index), 1]))
  const pieces = piecesOf(new Map(Array.from({ length: 2000 }, (_, index) => [BigInt(index + 1), 1])))
  t.equal(await withChanges(pieces, entriesOf(added).join('\n')), undefined)
})

t.test('a list that is read in full shares the equal pieces of the former one', async (t) => {
  const database = await testDatabase(t)
  await database.query("INSERT INTO inventory SELECT n, 0, 'sold' FROM generate_series(1, 50000) n")
  const pool = openDatabase({ url: database.url, size: 1, limits: listLimits, onConnectionLost: () => {} })
  t.teardown(() => pool.close())
  const list = inventoryList(
    inventoryRepository(pool, pool),
    new ActiveDownloads(),
    new InventoryStatistics(),
    pino({ level: 'silent' }),
  )
  const { pieces } = await list()
  t.ok(pieces.length > 5, `${pieces.length} pieces`)
  await database.query('DELETE FROM inventory WHERE pet_id = 50000')
  const second = await list()
  t.equal(second.count, 49_999)
  t.strictSame(
    second.pieces.map((piece, index) => piece === pieces[index]),
    pieces.map((_, index) => index < pieces.length - 1),
  )

  await t.test('and is the former one, with its compressed forms, if it is equal', async (t) => {
    await database.query("UPDATE inventory SET status = 'sold' WHERE pet_id = 1")
    t.equal(await list(), second, 'by its changes')
    await database.query('VACUUM FULL inventory')
    t.equal(await list(), second, 'read in full')
  })
})
