import type { Context } from '@opentelemetry/api'
import type { Condition } from '../entry/condition.ts'
import type { InventoryItem } from '../entry/schemas.ts'

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

/** An update whose caller waits for its outcome. */
export interface Update extends QuantityUpdate {
  /** Only `sendBatch` changes it: the version of the entry that a statement has left as it was. */
  version: string | undefined
  /** When it arrived, by `performance.now()`. */
  readonly arrivedAt: number
  /** The trace context of the request, if tracing is on. */
  readonly context: Context | undefined
  /** Gives the caller the entry as stored, or undefined if there is none. */
  readonly resolve: (item: InventoryItem | undefined) => void
  readonly reject: (error: unknown) => void
}
