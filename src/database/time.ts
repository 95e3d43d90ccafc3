/** Returns an SQL expression of a `timestamptz` as text in ISO 8601, in UTC, whatever the time zone and the DateStyle of the session are. */
export function isoTime(time: string): string {
  return `to_char(${time} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`
}
