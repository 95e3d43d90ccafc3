import t from 'tap'
import { RoundTrip } from '../../../src/inventory/updates/round-trip.ts'

t.test('the shortest round trip counts for one or two periods of five seconds', async (t) => {
  const roundTrip = new RoundTrip()
  t.equal(roundTrip.shortest, 0, 'unknown')
  roundTrip.observe(0.3, 0)
  roundTrip.observe(4, 4999)
  t.equal(roundTrip.shortest, 0.3)
  roundTrip.observe(2, 5000)
  t.equal(roundTrip.shortest, 0.3)
  roundTrip.observe(3, 10_000)
  t.equal(roundTrip.shortest, 2)
  roundTrip.observe(5, 60_000)
  t.equal(roundTrip.shortest, 5, 'what was before a pause does not count')
})

t.test('the quick round trip is the 10th percentile of the last statements', async (t) => {
  const roundTrip = new RoundTrip()
  t.equal(roundTrip.quick, 0, 'unknown')
  const observe = (from: number, to: number): void => {
    // Evenly spread, in an order without a pattern.
    for (let index = 0; index < 3000; index++)
      roundTrip.observe(from + (to - from) * ((index * 0.618034) % 1))
  }
  roundTrip.observe(30)
  observe(1, 2)
  t.ok(roundTrip.quick > 1.05 && roundTrip.quick < 1.15, `${roundTrip.quick} after a long one`)
  observe(5, 10)
  t.ok(roundTrip.quick > 5.2 && roundTrip.quick < 5.8, `${roundTrip.quick} from now on`)
  observe(0.2, 0.4)
  t.ok(roundTrip.quick > 0.21 && roundTrip.quick < 0.23, `${roundTrip.quick} from now on`)
})
