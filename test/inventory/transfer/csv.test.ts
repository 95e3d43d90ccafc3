import t from 'tap'
import { readCsv } from '../../../src/inventory/transfer/csv.ts'
import type { ImportLine } from '../../../src/inventory/transfer/import-line.ts'

const CHUNK_BYTES = 65_536
const MAX_CHUNKS = 1000

for (const [title, start] of [
  ['a line that is too long', 'petId,quantity\n1,2\n3,'],
  ['a quote that is not closed', 'petId,quantity\n1,2\n3,"'],
  ['a header that is too long', ''],
] as const) {
  t.test(`reading stops at ${title}`, async (t) => {
    let chunks = 0
    async function* source(): AsyncGenerator<Buffer> {
      yield Buffer.from(start)
      for (; chunks < MAX_CHUNKS; chunks++) yield Buffer.alloc(CHUNK_BYTES, '0')
    }
    const lines: ImportLine[] = []
    for await (const batch of readCsv(source())) lines.push(...batch)
    t.match(lines.at(-1), { error: /the rest was not read$/, endsReading: true })
    t.equal(lines.length, start === '' ? 1 : 2, 'with the lines before it')
    t.ok(chunks < 10, `${chunks} chunks were read`)
  })
}
