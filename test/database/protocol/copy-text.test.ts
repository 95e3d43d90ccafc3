import { pipeline } from 'node:stream/promises'
import pg from 'pg'
import { from as copyFrom, to as copyTo } from 'pg-copy-streams'
import t from 'tap'
import { copyOutputReader, toCopyText } from '../../../src/database/protocol/copy-text.ts'
import { testDatabase } from '../../support/database.ts'

const texts = [
  'plain',
  '',
  '\\N',
  '\\',
  '\\\\',
  'a "quoted" word',
  'tab\tnewline\nreturn\r',
  '\b\f\v\u0001\u007f',
  'ä€😀\u2028',
]

t.test('any text survives COPY in both directions, in pieces of any size', async (t) => {
  const { url } = await testDatabase(t)
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  t.teardown(() => client.end())
  await client.query('CREATE TEMPORARY TABLE texts (line integer, text text)')
  const lines = [...texts, undefined].map((text, line) => `${line}\t${toCopyText(text)}\n`)
  await pipeline(lines, client.query(copyFrom('COPY texts FROM STDIN')))
  const { rows } = await client.query<{ text: string | null }>('SELECT text FROM texts ORDER BY line')
  t.same(
    rows.map(({ text }) => text),
    [...texts, null],
  )

  const output: Buffer[] = []
  const query = 'SELECT to_json(text) FROM texts WHERE text IS NOT NULL ORDER BY line'
  for await (const piece of client.query(copyTo(`COPY (${query}) TO STDOUT`))) output.push(Buffer.from(piece))
  const whole = Buffer.concat(output)
  const expected = texts.map((text) => `${JSON.stringify(text)}\n`).join('')
  for (const size of [1, 2, 3, whole.length]) {
    const read = copyOutputReader()
    let json = ''
    for (let at = 0; at < whole.length; at += size) {
      json += read(Buffer.from(whole.subarray(at, at + size))).toString('latin1')
    }
    t.equal(Buffer.from(json, 'latin1').toString(), expected, `in pieces of ${size} bytes`)
  }
})
