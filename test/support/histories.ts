import type { Test } from 'tap'
import { contradictionIn } from './linearizability.ts'
import type { Load } from './load.ts'
import type { OwnServer } from './own-server.ts'

/**
 * Shows that all responses to the clients fit one order of the requests, that what is stored is its end, and that every
 * failure was a 503.
 */
export async function expectOneHistory(
  t: Test,
  load: Load,
  pets: readonly number[],
  stored: OwnServer,
): Promise<void> {
  await load.stop()
  for (const row of await stored.query('SELECT pet_id, quantity FROM inventory'))
    load.addRead(Number(row['pet_id']), Number(row['quantity']))
  for (const pet of pets) t.equal(contradictionIn(load.historyOf(pet), 0), undefined, `pet ${pet}`)
  t.strictSame(
    load.failures.filter(({ answer }) => answer?.status !== 503),
    [],
    'every failure was a 503',
  )
  t.comment(`${load.successes} requests were served, ${load.failures.length} were answered with a 503`)
}
