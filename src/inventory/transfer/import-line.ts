import { INT64_MAX, INT64_MIN, isInt64Text, readNumber } from '../../contract/int64.ts'
import { MAX_QUANTITY, type PetStatus, petStatuses } from '../schemas.ts'

/** An entry to import; the petId is a decimal int64, the status absent where the file leaves it open. */
export interface ImportEntry {
  readonly petId: string
  readonly quantity: number
  readonly status: PetStatus | undefined
}

/** A line of a file, counted from 1, and the entry it holds, or what is wrong with it in words for its author. */
export type ImportLine =
  | { readonly number: number; readonly entry: ImportEntry }
  | { readonly number: number; readonly fault: string }

export const importFields = ['petId', 'quantity', 'status'] as const
export type ImportField = (typeof importFields)[number]

/**
 * Holds the values of a line to the rules of the interface. Numbers come as they are written, undefined where there is
 * none; `show` gives a value as the file has it.
 */
export function importLine(
  number: number,
  petId: string | undefined,
  quantity: string | undefined,
  status: unknown,
  show: (field: ImportField) => string,
): ImportLine {
  const count = readQuantity(quantity)
  const knownStatus = petStatuses.find((known) => known === status)
  const petIdIsRight = petId !== undefined && isInt64Text(petId)
  const statusIsRight = knownStatus !== undefined || status === undefined
  if (petIdIsRight && count !== undefined && statusIsRight) {
    return { number, entry: { petId, quantity: count, status: knownStatus } }
  }
  const faults: string[] = []
  if (!petIdIsRight) {
    faults.push(
      `petId must be an integer from ${INT64_MIN} to ${INT64_MAX} in plain decimal, ${not('petId')}`,
    )
  }
  if (count === undefined) {
    faults.push(`quantity must be an integer from 0 to ${MAX_QUANTITY}, ${not('quantity')}`)
  }
  if (!statusIsRight) faults.push(`status must be one of ${petStatuses.join(', ')}, ${not('status')}`)
  return { number, fault: faults.join('; ') }

  function not(field: ImportField): string {
    const text = show(field)
    return `not ${text.length > 60 ? `${text.slice(0, 60)}…` : text}`
  }
}

/** The quantity that a JSON number stands for, which need not be written as an integer; undefined for anything else. */
function readQuantity(literal: string | undefined): number | undefined {
  if (literal === undefined) return undefined
  // What nearly every line has, told without the checks that the other notations need.
  if (/^(0|[1-9]\d{0,8})$/.test(literal)) return Number(literal)
  if (!/^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/.test(literal)) return undefined
  const quantity = readNumber(literal)
  return Number.isInteger(quantity) && quantity >= 0 && quantity <= MAX_QUANTITY ? quantity : undefined
}
