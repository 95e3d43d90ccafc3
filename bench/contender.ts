import type { Case } from './cases.ts'
import type { Sample } from './statistics.ts'

/** Something that is measured, ready to be asked. */
export interface Contender {
  /**
   * Asks once and checks the answers, byte for byte, against what they have to be, while the inventory is as it was
   * filled. It rejects where one is not right, as the speed of wrong answers says nothing.
   */
  verify(given: Case): Promise<void>
  /** Makes the load of a case for so many seconds, or a little longer. */
  measure(given: Case, seconds: number): Promise<Sample>
  stop(): Promise<void>
}
