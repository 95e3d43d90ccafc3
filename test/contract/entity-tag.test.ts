import t from 'tap'
import { ApiError } from '../../src/contract/api-error.ts'
import { entityTags } from '../../src/contract/entity-tag.ts'

t.test('a header full of spaces takes linear time', async (t) => {
  // With quadratic time, this would take hours.
  const spaces = ' '.repeat(1_000_000)
  for (const header of [`"a",${spaces}x`, `"a"${spaces}x`])
    t.throws(() => entityTags({ 'if-match': header }, 'If-Match'), ApiError)
  t.strictSame(entityTags({ 'if-match': `${spaces}"a"${spaces},${spaces}` }, 'If-Match'), ['a'])
})
