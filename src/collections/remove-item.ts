/**
 * Removes an item from an array, and returns whether it was there. For the few items that a request adds and removes, an
 * array costs less than a `Set`, whose tables outlive the request (see `TransientMap`).
 */
export function removeItem<Item>(items: Item[], item: Item): boolean {
  const index = items.indexOf(item)
  if (index === -1) return false
  items.splice(index, 1)
  return true
}
