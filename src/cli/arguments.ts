import { InvalidArgumentError } from 'commander'

/** Returns a parser for an argument that matches a pattern. `expected` completes the sentence "It must be …". */
export function matching(pattern: RegExp, expected: string): (text: string) => string {
  return (text) => {
    if (pattern.test(text)) return text
    throw new InvalidArgumentError(`It must be ${expected}.`)
  }
}

const UNIT = 'to 9999, followed by m, h, d or w, such as 90d or 24h'

/** Parses an interval of PostgreSQL in minutes, hours, days or weeks. */
export const readDuration = matching(/^\d{1,4}[mhdw]$/, `a whole number from 0 ${UNIT}`)

/** Parses an interval that is longer than zero. */
export const readLifetime = matching(/^[1-9]\d{0,3}[mhdw]$/, `a whole number from 1 ${UNIT}`)

/** Returns a parser for a whole number from `minimum`. */
export function integerFrom(minimum: number): (text: string) => number {
  return (text) => {
    if (/^\d{1,15}$/.test(text) && Number(text) >= minimum) return Number(text)
    throw new InvalidArgumentError(`It must be a whole number from ${minimum}.`)
  }
}
