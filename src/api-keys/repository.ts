import type { StatementRunner } from '../database/database.ts'
import { hasCause } from '../database/errors/sqlstate.ts'
import { onlyRow } from '../database/protocol/only-row.ts'
import { parseOptionalTime, parseTime, timeText } from '../database/protocol/time.ts'

/** An API key as operators see it, without the key itself, which is not stored. */
export interface ApiKey {
  /** The first 12 hexadecimal digits of its digest. */
  readonly id: string
  readonly name: string
  /** `ending`: the key was rotated and is accepted until `revokedAt`. */
  readonly state: 'active' | 'ending' | 'expired' | 'revoked'
  /** Whether the key may be used for reading only. */
  readonly readOnly: boolean
  readonly createdAt: Date
  readonly expiresAt: Date | null
  readonly revokedAt: Date | null
  readonly lastUsedAt: Date | null
}

/** An API key as the key cache reads it. */
export interface ApiKeyRecord {
  readonly digest: Buffer
  readonly name: string
  readonly state: ApiKey['state']
  readonly isReadOnly: boolean
  readonly createdAt: Date
  /** When the key expires or its revocation takes effect, whichever is first; null for neither. */
  readonly validUntil: Date | null
  readonly lastUsedAt: Date | null
}

/** Another key has the name, and is neither revoked nor expired. */
export class NameTakenError extends Error {
  override readonly name = 'NameTakenError'
}

/** All access to the table `api_keys`. Every method throws DatabaseUnavailableError if the database cannot answer. */
export interface ApiKeyRepository {
  /**
   * Creates a key. `lifetime` is in seconds; without it the key never expires.
   *
   * @throws {NameTakenError}
   */
  create(name: string, digest: Buffer, lifetime?: number, isReadOnly?: boolean): Promise<ApiKey>

  /**
   * Replaces the active key of the name with a new one, and revokes the old key after `overlap` seconds. Revokes keys that
   * are still ending at once, so at most two keys of a name are valid. The new key has the permissions of the old one and,
   * unless `lifetime` is given, its lifetime; both are in seconds. Returns undefined if no key of the name is active. Needs
   * a transaction.
   */
  rotate(name: string, digest: Buffer, overlap: number, lifetime?: number): Promise<ApiKey | undefined>

  /**
   * Revokes all valid keys of the name, or only the one with the id, including the new key of a rotation that is under way.
   * Returns the revoked keys. Needs a transaction.
   */
  revoke(name: string, id?: string): Promise<ApiKey[]>

  /** Lists all keys, or those of one name, including expired and revoked ones, by name, oldest first. */
  list(name?: string): Promise<ApiKey[]>

  /** Counts the keys in each state. */
  countByState(): Promise<Record<ApiKey['state'], number>>

  /** Finds all keys that are accepted now, and of the presented digests also those that are expired or revoked. */
  findActive(presented?: readonly Buffer[]): Promise<ApiKeyRecord[]>

  /** Records when keys were last used, for each key at most once a minute. */
  markUsed(uses: readonly { readonly digest: Buffer; readonly usedAt: Date }[]): Promise<void>
}

const STATE = `CASE
  WHEN expires_at <= least(revoked_at, now()) THEN 'expired'
  WHEN revoked_at <= now() THEN 'revoked'
  WHEN revoked_at IS NOT NULL THEN 'ending'
  ELSE 'active'
END`

const API_KEY = `left(encode(digest, 'hex'), 12) AS id, name, ${STATE} AS state, is_read_only AS "readOnly",
  ${timeText('created_at')} AS "createdAt", ${timeText('expires_at')} AS "expiresAt",
  ${timeText('revoked_at')} AS "revokedAt", ${timeText('last_used_at')} AS "lastUsedAt"`

/** The row of a statement, in which times are text. */
type RowOf<Result> = {
  readonly [Field in keyof Result]:
    | Exclude<Result[Field], Date>
    | (Date extends Result[Field] ? string : never)
}

function keyOf({ createdAt, expiresAt, revokedAt, lastUsedAt, ...key }: RowOf<ApiKey>): ApiKey {
  return {
    ...key,
    createdAt: parseTime(createdAt),
    expiresAt: parseOptionalTime(expiresAt),
    revokedAt: parseOptionalTime(revokedAt),
    lastUsedAt: parseOptionalTime(lastUsedAt),
  }
}

function recordOf({ createdAt, validUntil, lastUsedAt, ...record }: RowOf<ApiKeyRecord>): ApiKeyRecord {
  return {
    ...record,
    createdAt: parseTime(createdAt),
    validUntil: parseOptionalTime(validUntil),
    lastUsedAt: parseOptionalTime(lastUsedAt),
  }
}

const IS_ACTIVE = `coalesce(least(expires_at, revoked_at), 'infinity') > now()`

/** Creates the repository on a pool or in a transaction. */
export function apiKeyRepository(database: StatementRunner): ApiKeyRepository {
  /**
   * Waits for the rotations and revocations of the name that are under way, and delays later ones until the end of the
   * transaction. A statement of its own, because a statement does not see the keys added by what it has waited for.
   */
  const lockKeysOf = (name: string): Promise<unknown> =>
    database.query('SELECT FROM api_keys WHERE name = $1 ORDER BY created_at, digest FOR UPDATE', [name])

  return {
    async create(name, digest, lifetime, isReadOnly = false) {
      try {
        // Frees the name of an expired key. The count makes PostgreSQL complete that update before the insert.
        const rows = await database.query<RowOf<ApiKey>>(
          `WITH freed AS (
             UPDATE api_keys SET revoked_at = expires_at
             WHERE name = $1 AND revoked_at IS NULL AND expires_at <= now()
             RETURNING name
           )
           INSERT INTO api_keys (name, digest, expires_at, is_read_only)
           SELECT $1, $2, now() + make_interval(secs => $3), $4 FROM (SELECT count(*) FROM freed) AS freed_count
           RETURNING ${API_KEY}`,
          [name, digest, lifetime ?? null, isReadOnly],
        )
        return keyOf(onlyRow(rows))
      } catch (error) {
        throw hasCause(error, 'duplicate')
          ? new NameTakenError(`A key named "${name}" exists already.`)
          : error
      }
    },

    async rotate(name, digest, overlap, lifetime) {
      await lockKeysOf(name)
      const [row] = await database.query<RowOf<ApiKey>>(
        `WITH old AS (
           UPDATE api_keys SET revoked_at = now() + make_interval(secs => $3)
           WHERE name = $1 AND revoked_at IS NULL AND ${IS_ACTIVE}
           RETURNING name, expires_at - created_at AS lifetime, is_read_only
         ), older AS (
           UPDATE api_keys SET revoked_at = now() FROM old WHERE api_keys.name = old.name AND revoked_at > now()
         )
         INSERT INTO api_keys (name, digest, expires_at, is_read_only)
         SELECT $1, $2, now() + coalesce(make_interval(secs => $4), lifetime), is_read_only FROM old
         RETURNING ${API_KEY}`,
        [name, digest, overlap, lifetime ?? null],
      )
      return row && keyOf(row)
    },

    async revoke(name, id) {
      await lockKeysOf(name)
      const rows = await database.query<RowOf<ApiKey>>(
        `UPDATE api_keys SET revoked_at = now()
         WHERE name = $1 AND ${IS_ACTIVE} AND ($2::text IS NULL OR left(encode(digest, 'hex'), 12) = $2)
         RETURNING ${API_KEY}`,
        [name, id ?? null],
      )
      return rows.map(keyOf)
    },

    async list(name) {
      const rows = await database.query<RowOf<ApiKey>>(
        `SELECT ${API_KEY} FROM api_keys WHERE $1::text IS NULL OR name = $1 ORDER BY name, created_at, digest`,
        [name ?? null],
      )
      return rows.map(keyOf)
    },

    async countByState() {
      const rows = await database.query<{ state: ApiKey['state']; count: number }>(
        `SELECT ${STATE} AS state, count(*)::integer AS count FROM api_keys GROUP BY 1`,
      )
      const counts: Record<ApiKey['state'], number> = { active: 0, ending: 0, expired: 0, revoked: 0 }
      for (const { state, count } of rows) counts[state] = count
      return counts
    },

    async findActive(presented = []) {
      // Through JSON a missing column reads as null, so that this version also serves callers before its migration has run.
      const rows = await database.query<RowOf<ApiKeyRecord>>(
        `SELECT digest, name, ${STATE} AS state, ${timeText('created_at')} AS "createdAt",
                ${timeText('least(expires_at, revoked_at)')} AS "validUntil",
                ${timeText('last_used_at')} AS "lastUsedAt",
                coalesce((to_jsonb(api_keys) ->> 'is_read_only')::boolean, false) AS "isReadOnly"
         FROM api_keys WHERE ${IS_ACTIVE} OR digest = ANY ($1::bytea[])`,
        [presented],
      )
      return rows.map(recordOf)
    },

    async markUsed(uses) {
      await database.query(
        `UPDATE api_keys SET last_used_at = use.used_at
         FROM unnest($1::bytea[], $2::timestamptz[]) AS use (digest, used_at)
         WHERE api_keys.digest = use.digest
           AND coalesce(last_used_at + interval '1 minute' <= use.used_at, true)`,
        [uses.map(({ digest }) => digest), uses.map(({ usedAt }) => usedAt)],
      )
    },
  }
}
