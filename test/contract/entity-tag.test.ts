import t from 'tap'
import { entityTags } from '../../src/contract/entity-tag.ts'

t.test('a header full of spaces takes linear time', async (t) => {
  // With quadratic time, this would take hours.
  const spaces = ' '.repeat(1_000_000)
  t.equal(entityTags(`"a",${spaces}x`), undefined)
  t.equal(entityTags(`"a"${spaces}x`), undefined)
  t.strictSame(entityTags(`${spaces}"a"${spaces},${spaces}`), [{ name: 'a', isWeak: false }])
})
