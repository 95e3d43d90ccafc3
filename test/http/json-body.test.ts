import t from 'tap'
import { hasContentCoding } from '../../src/http/json-body.ts'

t.test('a Content-Encoding full of spaces takes linear time', async (t) => {
  // With quadratic time, this would take hours.
  const spaces = ' '.repeat(1_000_000)
  t.equal(hasContentCoding({ 'content-encoding': `identity,${spaces}x` }), true)
  t.equal(hasContentCoding({ 'content-encoding': `${spaces}Identity${spaces},${spaces}` }), false)
})
