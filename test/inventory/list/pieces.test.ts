import fc from 'fast-check'
import { pino } from 'pino'
import t from 'tap'
import { listLimits, openDatabase } from '../../../src/database/pool/pool.ts'
import { ActiveDownloads } from '../../../src/inventory/list/active-downloads.ts'
import { inventoryList } from '../../../src/inventory/list/cached-list.ts'
import { entriesOfLines, type Piece, PieceBuilder, withChanges } from '../../../src/inventory/list/pieces.ts'
import { Snapshot } from '../../../src/inventory/list/snapshot.ts'
import { inventoryRepository } from '../../../src/inventory/repository.ts'
import { InventoryStatistics } from '../../../src/inventory/statistics.ts'
import { testDatabase } from '../../support/database.ts'

type Items = ReadonlyMap<bigint, number>

const entriesOf = (items: Items): string[] =>
  [...items]
    .sort(([one], [other]) => (one < other ? -1 : 1))
    .map(([petId, quantity]) => `{"petId":${petId},"quantity":${quantity},"status":"sold"}`)

/** Cuts the items into pieces, from lines that arrive in parts of that size. */
function piecesOf(items: Items, partSize: number): Piece[] {
  const builder = new PieceBuilder()
  const lines = Buffer.from(
    entriesOf(items)
      .map((entry) => `${entry}\n`)
      .join(''),
  )
  for (let at = 0; at < lines.length; at += partSize)
    builder.add(Buffer.from(lines.subarray(at, at + partSize)))
  return builder.finish()
}

const textOf = (pieces: readonly Piece[]): string =>
  Buffer.concat(pieces.map(({ bytes }) => bytes)).toString()

/** Ids that start a piece. */
const starters = piecesOf(
  new Map(Array.from({ length: 100_000 }, (_, index) => [BigInt(index), 1])),
  65_536,
).map(({ bytes }) => BigInt(/\d+/.exec(bytes.toString('latin1', 0, 40))?.[0] ?? ''))

/** Ids of every length and sign, with neighbors, and ids that are close together. */
const petId = fc.oneof(
  fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
  fc.bigInt({ min: -50n, max: 50n }),
  fc.bigInt({ min: 1n, max: 20_000n }),
  fc.constantFrom(...starters),
)

const changesOf = fc.array(fc.tuple(petId, fc.nat({ max: 2_147_483_647 })), { maxLength: 60 })

t.test('pieces with changes are those of the changed list, whatever the changes', async (t) => {
  const run = async (size: number, rounds: [bigint, number][][], partSize: number): Promise<void> => {
    const items = new Map<bigint, number>()
    for (let id = 1n; id <= BigInt(size); id++) items.set(id * 3n, 1)
    let pieces = piecesOf(items, partSize)
    for (const round of rounds) {
      const changes = new Map(round)
      for (const [id, quantity] of changes) items.set(id, quantity)
      pieces = await withChanges(pieces, entriesOfLines(Buffer.from(entriesOf(changes).join('\n'))))
      const whole = piecesOf(items, partSize)
      const digests = pieces.map(({ digest }) => digest)
      if (digests.join() !== whole.map(({ digest }) => digest).join())
        throw new Error('The pieces differ from those of the whole list')
      if (pieces.length > 0 && textOf(pieces) !== `[${entriesOf(items).join()}]`)
        throw new Error('Joined, the pieces are not the list')
      if (pieces.some((piece, index) => String(piece.starts) !== String(whole[index]?.starts)))
        throw new Error('The places of entries differ')
    }
  }
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(0, 1, 3, 200, 3000),
      fc.array(changesOf, { minLength: 1, maxLength: 4 }),
      fc.constantFrom(7, 100, 65_536),
      run,
    ),
    { numRuns: 300 },
  )
  t.pass()
})

t.test('pieces that do not change are the same objects', async (t) => {
  const items = new Map(Array.from({ length: 100_000 }, (_, index) => [BigInt(index), 1]))
  const pieces = piecesOf(items, 65_536)
  t.ok(pieces.length > 5, `${pieces.length} pieces`)
  const line = '{"petId":10000,"quantity":2,"status":"sold"}'
  const changed = await withChanges(pieces, entriesOfLines(Buffer.from(line)))
  t.equal(changed.filter((piece) => !pieces.includes(piece)).length, 1)
  const same = await withChanges(changed, entriesOfLines(Buffer.from(line)))
  t.strictSame(same, changed)
  t.ok(
    same.every((piece) => changed.includes(piece)),
    'an entry that is written with the same values',
  )
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

t.test('a list of one piece is sent from the memory of the piece, without a copy', async (t) => {
  const pieces = piecesOf(new Map([[1n, 5]]), 7)
  t.equal(new Snapshot(pieces).chunks[0], pieces[0]?.bytes)
})
