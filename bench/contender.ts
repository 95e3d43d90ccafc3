import type { Case } from './cases.ts'
import type { Sample } from './statistics.ts'

/** A contender that is ready for measurements. */
export interface Contender {
  /**
   * Sends each request once and compares the responses, byte for byte, with the expected ones for the initial inventory.
   * Rejects if one is wrong, because the speed of wrong responses means nothing.
   */
  verify(given: Case): Promise<void>
  /** Generates the load of a case for `seconds`, or a little longer. */
  measure(given: Case, seconds: number): Promise<Sample>
  stop(): Promise<void>
}
