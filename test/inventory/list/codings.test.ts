import zlib from 'node:zlib'
import t from 'tap'
import { encodings } from '../../../src/inventory/list/codings.ts'
import { entriesOfLines, withChanges } from '../../../src/inventory/list/pieces.ts'
import { Snapshot, snapshotOfLines } from '../../../src/inventory/list/snapshot.ts'

const decoders = {
  identity: (bytes: Buffer) => bytes,
  gzip: (bytes: Buffer) => zlib.gunzipSync(bytes),
  br: (bytes: Buffer) => zlib.brotliDecompressSync(bytes),
  zstd: (bytes: Buffer) => zlib.zstdDecompressSync(bytes),
}

async function* linesOf(count: number): AsyncGenerator<Buffer> {
  const line = (_: unknown, index: number): string =>
    `{"petId":${index + 1},"quantity":${(index + 1) % 1000},"status":"available"}\n`
  yield Buffer.from(Array.from({ length: count }, line).join(''))
}

const bytesOf = ({ chunks }: { chunks: readonly Buffer[] }): Buffer => Buffer.concat([...chunks])

for (const count of [0, 1, 1000, 150_000]) {
  t.test(`${count} entries are the same text in every coding, before and after a change`, async (t) => {
    const first = await snapshotOfLines(linesOf(count))
    const changed = entriesOfLines(Buffer.from('{"petId":2,"quantity":77,"status":"sold"}'))
    const second = new Snapshot(await withChanges(first.pieces, changed), true)
    t.not(second.etag, first.etag)
    t.strictSame(second.encodings, first.chunks.length > 1 ? ['gzip', 'identity'] : encodings)
    for (const list of [first, second]) {
      const text = bytesOf(list)
      t.doesNotThrow(() => JSON.parse(text.toString()))
      t.equal(text.length, list.size)
      for (const encoding of encodings) {
        const encoded = await list.encoded(encoding)
        const bytes = bytesOf(encoded)
        t.equal(bytes.length, encoded.size)
        t.ok(decoders[encoding](bytes).equals(text), encoding)
      }
    }
  })
}

t.test('after a change, all but the changed part of a large list was compressed before', async (t) => {
  // More than a megabyte by gzip, too: a smaller result is one chunk.
  const first = await snapshotOfLines(linesOf(300_000))
  const changed = entriesOfLines(Buffer.from('{"petId":70000,"quantity":77,"status":"sold"}'))
  const second = new Snapshot(await withChanges(first.pieces, changed), true)
  t.equal(first.encodings.at(-2), 'gzip', 'while it does not change, a coding that is smaller is preferred')
  t.strictSame(second.encodings, ['gzip', 'identity'])
  const { chunks: before } = await first.encoded('gzip')
  const { chunks: after } = await second.encoded('gzip')
  t.ok(before.length > 40, `${before.length} chunks`)
  t.equal(after.length, before.length)
  // The changed piece, and the checksum of the file.
  t.equal(after.filter((chunk) => !before.includes(chunk)).length, 2)
})

t.test('a large list that was compressed by gzip is one member, which every client reads', async (t) => {
  const list = await snapshotOfLines(linesOf(150_000))
  const bytes = bytesOf(await list.encoded('gzip'))
  // Raw deflate from after the header: it ends where the trailer of the only member starts.
  const raw = zlib.inflateRawSync(bytes.subarray(10))
  t.ok(raw.equals(bytesOf(list)))
  t.equal(bytes.readUInt32LE(bytes.length - 4), list.size)
})
