import type { Condition } from '../entry/condition.ts'

/** The new quantity of one pet. */
export interface QuantityUpdate {
  readonly petId: bigint
  readonly quantity: number
  /** What the entry must be, for the update to be made. */
  readonly condition?: Condition | undefined
}
