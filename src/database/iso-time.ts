/**
 * Returns an SQL expression of a `timestamptz` in ISO 8601, in UTC, whatever the session's settings are. A time that ISO 8601 does not
 * know, such as `infinity` and those before Christ, is as PostgreSQL writes it.
 */
export function isoTime(time: string): string {
  return `CASE WHEN ${time} >= '0001-01-01' AND ${time} < 'infinity'
    THEN to_char(${time} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') ELSE (${time})::text END`
}
