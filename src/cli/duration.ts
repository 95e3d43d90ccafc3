import { InvalidArgumentError } from 'commander'

const secondsIn: Record<string, number> = { m: 60, h: 3600, d: 86_400, w: 604_800 }

/**
 * Parses a duration such as `90d`, a whole number of minutes, hours, days or weeks, and returns it in seconds.
 *
 * @throws {InvalidArgumentError} for commander to report
 */
export function readDuration(text: string): number {
  const [, count = '', unit = ''] = /^(\d{1,4})([mhdw])$/.exec(text) ?? []
  const seconds = secondsIn[unit]
  if (seconds === undefined) {
    throw new InvalidArgumentError(
      'It must be a whole number of at most four digits, followed by m, h, d or w, such as 90d or 24h.',
    )
  }
  return Number(count) * seconds
}

/** Parses a duration that must be greater than zero. */
export function readLifetime(text: string): number {
  const seconds = readDuration(text)
  if (seconds === 0) throw new InvalidArgumentError('It must be greater than zero.')
  return seconds
}
