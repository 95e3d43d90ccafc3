import { randomOf } from './random.ts'

/** Random changes of the table `inventory`, the same for the same seed. */
export interface RandomChanges {
  /** Returns a number from 0 to below `limit`. */
  random(limit: number): number
  pick<Item>(items: readonly [Item, ...Item[]]): Item
  /** Returns a statement, or several, that change rows. */
  change(): string
  /** Returns changes with parts that are undone, and others of subtransactions, for an open transaction. */
  withSavepoints(): string
}

export function randomChanges(seed: number): RandomChanges {
  const random = randomOf(seed)

  const pick = <Item>(items: readonly [Item, ...Item[]]): Item => items[random(items.length)] ?? items[0]

  /** An id that may have an entry, or any other. */
  const anyId = (): string =>
    pick([
      String(random(3000)),
      String(random(3000)),
      String(random(3000)),
      String(-random(100)),
      String(BigInt(random(2 ** 31)) * BigInt(random(2 ** 31)) - 2n ** 60n),
    ])

  const anyStatus = (): string => pick(['available', 'pending', 'sold'])

  const update = (): string => `UPDATE inventory SET quantity = ${random(1000)} WHERE pet_id = ${anyId()}`
  const updateMany = (): string =>
    `UPDATE inventory SET quantity = quantity + 1 WHERE pet_id % ${50 + random(400)} = ${random(50)}`
  const setStatus = (): string => `UPDATE inventory SET status = '${anyStatus()}' WHERE pet_id = ${anyId()}`
  const insert = (): string =>
    `INSERT INTO inventory VALUES (${anyId()}, ${random(1000)}, '${anyStatus()}') ON CONFLICT DO NOTHING`
  const remove = (): string => `DELETE FROM inventory WHERE pet_id = ${anyId()}`
  const replace = (): string => {
    const id = anyId()
    return `DELETE FROM inventory WHERE pet_id = ${id}; INSERT INTO inventory VALUES (${id}, ${random(9)}, 'sold')`
  }
  const exchange = (): string =>
    `DELETE FROM inventory WHERE pet_id = (SELECT pet_id FROM inventory LIMIT 1); INSERT INTO inventory
     SELECT max(pet_id) + 1, 1, 'sold' FROM inventory WHERE pet_id < 9223372036854775807`

  const change = (): string =>
    pick([update, update, update, updateMany, setStatus, insert, insert, remove, replace, exchange])()

  const withSavepoints = (): string =>
    `SAVEPOINT one; ${change()}; RELEASE one; SAVEPOINT two; ${change()}; ROLLBACK TO two; SAVEPOINT three; ${change()}`

  return { random, pick, change, withSavepoints }
}
