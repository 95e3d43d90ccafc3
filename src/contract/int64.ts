import { isSafeNumber } from 'lossless-json'

export const INT64_MIN = -(2n ** 63n)
export const INT64_MAX = 2n ** 63n - 1n

/** Whether a text is a canonical decimal int64, as `String(n)` writes it: no plus sign, leading zeros or other notation. */
export function isInt64Text(text: string): boolean {
  // Bounds the length first: parsing a BigInt takes quadratic time.
  if (!/^(0|-?[1-9][0-9]{0,18})$/.test(text)) return false
  // Fast path for imports: fewer than 19 characters are always in range.
  if (text.length < 19) return true
  const value = BigInt(text)
  return INT64_MIN <= value && value <= INT64_MAX
}

/** Parses a JSON number. One that a double would round, such as 4.99999999999999999999, is NaN, which fails every schema. */
export function readNumber(literal: string): number {
  return isSafeNumber(literal) ? Number(literal) : Number.NaN
}
