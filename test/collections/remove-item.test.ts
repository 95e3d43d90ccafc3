import t from 'tap'
import { removeItem } from '../../src/collections/remove-item.ts'

t.test('one item is removed, the others keep their order', async (t) => {
  const items = ['a', 'b', 'c', 'b']
  t.equal(removeItem(items, 'b'), true)
  t.strictSame(items, ['a', 'c', 'b'])
})

t.test('an item that is not there removes nothing', async (t) => {
  const items = ['a']
  t.equal(removeItem(items, 'b'), false)
  t.strictSame(items, ['a'])
})
