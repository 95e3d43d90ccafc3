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

t.test(
  'values may be quoted and contain quotes, commas and line breaks, however the input is split',
  async (t) => {
    const text =
      '\uFEFF"quantity",petId,status\r\n1,"2",\n\n"3","a ""quoted"", € id\r\nin two lines","sold"\n4,5"6,\n"7"8,9,"sold"\n"",10,sold\n11,"12",""'
    const expected = [
      { number: 2, entry: ['2', '1', undefined] },
      { number: 4, error: /^petId must be .*, not "a \\"quoted\\", € id\\r\\nin two lines"$/ },
      { number: 6, error: /^petId must be .*, not "5\\"6"$/ },
      { number: 7, error: /^quantity must be .*, not "\\"7\\"8"$/ },
      { number: 8, error: /^quantity must be .*, not ""$/ },
      { number: 9, entry: ['12', '11', undefined] },
    ]
    const bytes = Buffer.from(text)
    for (const size of [1, 2, 3, bytes.length]) {
      async function* source(): AsyncGenerator<Buffer> {
        for (let start = 0; start < bytes.length; start += size) yield bytes.subarray(start, start + size)
      }
      const lines: ImportLine[] = []
      for await (const batch of readCsv(source())) lines.push(...batch)
      t.match(lines, expected, `chunks of ${size} bytes`)
      t.equal(lines.length, expected.length)
    }
  },
)
