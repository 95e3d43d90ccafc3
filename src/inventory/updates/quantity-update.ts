import type { Condition } from '../condition.ts'
import type { InventoryItem } from '../schemas.ts'

/** The new quantity of one pet. */
export interface QuantityUpdate {
  readonly petId: bigint
  readonly quantity: number
  /** What the entry must be, for the update to be made. */
  readonly condition?: Condition | undefined
}

/** What a statement has written. */
export interface Written {
  /** The entries as they are stored, by the petId that was asked for. */
  readonly entries: ReadonlyMap<bigint, InventoryItem>
  /**
   * Pets whose entries do not meet the condition of their update and were not changed, with the tag, without quotes, that did not
   * meet it.
   */
  readonly unmet: ReadonlyMap<bigint, string>
  /** Whether the table may have triggers, rules or constraints that the migrations did not make, and that may change a row. */
  readonly hasRules: boolean
}
