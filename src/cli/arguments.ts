import { InvalidArgumentError } from 'commander'

const secondsIn: Record<string, number> = { m: 60, h: 3600, d: 86_400, w: 604_800 }

/** Parses a duration such as `90d`, a whole number of minutes, hours, days or weeks, and returns it in seconds. */
export function readDuration(text: string): number {
  const [, count = '', unit = ''] = /^(\d{1,4})([mhdw])$/.exec(text) ?? []
  const seconds = secondsIn[unit]
  if (seconds !== undefined) return Number(count) * seconds
  throw new InvalidArgumentError(
    'It must be a whole number of at most four digits, followed by m, h, d or w, such as 90d or 24h.',
  )
}

/** Parses a duration that must be greater than zero. */
export function readLifetime(text: string): number {
  const seconds = readDuration(text)
  if (seconds > 0) return seconds
  throw new InvalidArgumentError('It must be greater than zero.')
}

/** Returns a parser for an argument that matches a pattern. `expected` completes the sentence "It must be …". */
export function matching(pattern: RegExp, expected: string): (text: string) => string {
  return (text) => {
    if (pattern.test(text)) return text
    throw new InvalidArgumentError(`It must be ${expected}.`)
  }
}

/** Returns a parser for a whole number from `minimum`. */
export function integerFrom(minimum: number): (text: string) => number {
  return (text) => {
    if (/^\d{1,15}$/.test(text) && Number(text) >= minimum) return Number(text)
    throw new InvalidArgumentError(`It must be a whole number from ${minimum}.`)
  }
}
