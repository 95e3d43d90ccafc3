import { setTimeout } from 'node:timers/promises'
import type { Test } from 'tap'
import { until } from './eventually.ts'
import type { RecordedChange } from './history.ts'
import { json } from './http.ts'
import { persistentCaller } from './program.ts'

/**
 * Starts a writer for each pet, the only one of its pet: it counts up from 1, and sends each quantity again until it is acknowledged.
 * The services at the ports have the pets round-robin.
 */
export function startWriters(t: Test, ports: readonly number[], pets: readonly number[]) {
  let acknowledged = 0
  let isStopping = false
  const write = async (pet: number): Promise<void> => {
    const send = persistentCaller(t, ports[pet % ports.length] ?? 0)
    for (let quantity = 1; !isStopping; await setTimeout(10)) {
      const sent = send('PATCH', `/v1/inventory/${pet}`, json({ quantity }))
      if ((await sent.catch(() => undefined))?.status !== 200) continue
      quantity++
      acknowledged++
    }
  }
  const writing = pets.map(write)
  return {
    /** Resolves when that many more updates are acknowledged. */
    served(count: number) {
      const target = acknowledged + count
      return until(`${count} updates`, () => acknowledged >= target)
    },
    /** Lets every writer finish its last request. */
    async stop() {
      isStopping = true
      await Promise.all(writing)
    },
  }
}

/** Returns the changes, oldest first, by which an older quantity of a writer replaced a newer one. */
export function lateIn(changes: readonly RecordedChange[], pets: readonly number[]): RecordedChange[] {
  return changes.filter(({ petId, oldQuantity, newQuantity }) => {
    const isOfWriter = petId !== null && pets.includes(petId)
    return isOfWriter && oldQuantity !== null && newQuantity !== null && newQuantity < oldQuantity
  })
}
