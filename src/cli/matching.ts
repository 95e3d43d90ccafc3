import { InvalidArgumentError } from 'commander'

/**
 * Returns a parser for an argument that matches a pattern. `expected` completes the sentence "It must be …"; commander reports it
 * as a usage error.
 */
export function matching(pattern: RegExp, expected: string): (text: string) => string {
  return (text) => {
    if (!pattern.test(text)) throw new InvalidArgumentError(`It must be ${expected}.`)
    return text
  }
}

/** Returns a parser for a whole number from `minimum` to `maximum`. */
export function integerFrom(minimum: number, maximum = Number.MAX_SAFE_INTEGER): (text: string) => number {
  const upTo = maximum === Number.MAX_SAFE_INTEGER ? '' : ` to ${maximum}`
  return (text) => {
    const value = /^\d{1,15}$/.test(text) ? Number(text) : -1
    if (value >= minimum && value <= maximum) return value
    throw new InvalidArgumentError(`It must be a whole number from ${minimum}${upTo}.`)
  }
}
