/**
 * Prints how long three parsers take for the same list: JSON.parse, which rounds large ids; the parser in
 * examples/typescript/client.ts; and lossless-json.
 */
import { isLosslessNumber, parse } from 'lossless-json'
import { readItems } from '../examples/typescript/client.ts'

const ENTRIES = 100_000
const ROUNDS = 15

const entries = Array.from(
  { length: ENTRIES },
  (_, index) =>
    `{"petId":${9_007_199_254_740_993n + BigInt(index)},"quantity":${index % 500},"status":"available"}`,
)
const text = `[${entries.join(',')}]`

const parsers = {
  'JSON.parse (rounds)': (): unknown => JSON.parse(text),
  'examples/typescript/client.ts': (): unknown => readItems(text),
  'lossless-json': (): unknown =>
    parse(text, (name, value) => {
      if (!isLosslessNumber(value)) return value
      return name === 'petId' ? BigInt(value.value) : Number(value.value)
    }),
}

/** Returns the median time. */
function medianMs(read: () => unknown): number {
  const times: number[] = []
  for (let round = 0; round < ROUNDS; round++) {
    const start = performance.now()
    read()
    times.push(performance.now() - start)
  }
  return times.toSorted((a, b) => a - b)[Math.floor(ROUNDS / 2)] ?? Number.NaN
}

console.log(`${ENTRIES} entries, ${text.length} characters, Node ${process.version}, median of ${ROUNDS}:`)
for (const [name, read] of Object.entries(parsers)) console.log(`${medianMs(read).toFixed(0)} ms\t${name}`)
