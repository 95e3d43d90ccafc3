import type { Condition } from '../entry/condition.ts'

/** Who made an update, for the history. The names are those of the log. */
export interface Caller {
  readonly key: { readonly name: string; readonly id?: string } | null
  readonly requestId: string
}

/** The new quantity of one pet. */
export interface QuantityUpdate {
  readonly petId: bigint
  readonly quantity: number
  /** What the entry must be, for the update to be made. */
  readonly condition?: Condition | undefined
  readonly caller?: Caller | undefined
}
