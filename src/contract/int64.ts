export const INT64_MIN = -(2n ** 63n)
export const INT64_MAX = 2n ** 63n - 1n

/** True for a decimal int64 as `String(n)` writes it: no plus sign, no leading zeros, no other notation. */
export function isInt64Text(text: string): boolean {
  // A BigInt out of a long text takes quadratic time; none of more than 20 characters is in range.
  if (!/^(0|-?[1-9][0-9]{0,18})$/.test(text)) return false
  // Fewer than 19 digits are always in range, and millions of them are imported.
  if (text.length < 19) return true
  const value = BigInt(text)
  return INT64_MIN <= value && value <= INT64_MAX
}

/**
 * The number that a JSON literal stands for, or NaN for one such as 4.99999999999999999999 that would be rounded
 * to an integer without being one: NaN passes no schema, so a quantity that was not sent is never stored.
 */
export function readNumber(literal: string): number {
  const number = Number(literal)
  return Number.isInteger(number) && !isIntegerLiteral(literal) ? Number.NaN : number
}

function isIntegerLiteral(literal: string): boolean {
  const [, whole = '', fraction = '', exponent = '0'] =
    /^-?(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(literal) ?? []
  const shift = Number(exponent)
  const digits = whole + fraction
  const integerDigits = whole.length + shift
  return !/[1-9]/.test(digits.slice(Math.max(0, integerDigits)))
}
