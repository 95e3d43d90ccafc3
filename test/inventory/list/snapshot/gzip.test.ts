import zlib from 'node:zlib'
import t from 'tap'
import { withChanges } from '../../../../src/inventory/list/snapshot/pieces.ts'
import { Snapshot } from '../../../../src/inventory/list/snapshot/snapshot.ts'

const entriesFrom = (first: number, count: number): string =>
  Array.from(
    { length: count },
    (_, index) => `{"petId":${first + index},"quantity":${(first + index) % 1000},"status":"available"}`,
  ).join('\n')

/** Adds entries a thousand at a time, as more new ones at once make the whole list be read. */
async function snapshotOf(count: number, changes = ''): Promise<Snapshot> {
  let snapshot = new Snapshot([])
  for (let first = 1; first <= count; first += 1000)
    snapshot = new Snapshot(
      (await withChanges(snapshot.pieces, entriesFrom(first, Math.min(1000, count + 1 - first)))) ?? [],
    )
  return changes === '' ? snapshot : new Snapshot((await withChanges(snapshot.pieces, changes)) ?? [])
}

const bytesOf = ({ chunks }: { chunks: readonly Buffer[] }): Buffer => Buffer.concat([...chunks])

for (const count of [0, 1, 1000, 60_000]) {
  t.test(`a list of ${count} entries is the same text in gzip, before and after a change`, async (t) => {
    const first = await snapshotOf(count)
    const second = await snapshotOf(count, '{"petId":2,"quantity":77,"status":"sold"}')
    t.not(second.etag, first.etag)
    for (const list of [first, second]) {
      const text = bytesOf(list)
      t.doesNotThrow(() => JSON.parse(text.toString()))
      t.equal(text.length, list.size)
      const encoded = await list.encoded('gzip')
      const bytes = bytesOf(encoded)
      t.equal(bytes.length, encoded.size)
      t.ok(zlib.gunzipSync(bytes).equals(text))
      // Raw deflate from after the header ends where the trailer of the only member starts.
      t.ok(zlib.inflateRawSync(bytes.subarray(10)).equals(text), 'one member, which every client reads')
      t.equal(bytes.readUInt32LE(bytes.length - 4), list.size)
    }
  })
}

t.test('after a change, all but the changed part of a large list was compressed before', async (t) => {
  // More than a megabyte by gzip, too: a smaller result is one chunk.
  const first = await snapshotOf(300_000)
  const pieces = await withChanges(first.pieces, '{"petId":70000,"quantity":77,"status":"sold"}')
  const { chunks: before } = await first.encoded('gzip')
  const { chunks: after } = await new Snapshot(pieces ?? []).encoded('gzip')
  t.ok(before.length > 40, `${before.length} chunks`)
  t.equal(after.length, before.length)
  // The changed piece, and the checksum of the file.
  t.equal(after.filter((chunk) => !before.includes(chunk)).length, 2)
})
