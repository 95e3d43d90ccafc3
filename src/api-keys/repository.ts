import { isDuplicate } from '../database/failures.ts'
import type { StatementRunner } from '../database/pool.ts'

/** What is known of a key; the key itself is not. */
export interface ApiKey {
  /** The first 12 hexadecimal digits of its digest. */
  readonly id: string
  readonly name: string
  /** `ending`: it was replaced and still lets its holder in until `revokedAt`. */
  readonly state: 'active' | 'ending' | 'expired' | 'revoked'
  /** Whether it lets its holder read, and change nothing. */
  readonly readOnly: boolean
  readonly createdAt: Date
  readonly expiresAt: Date | null
  readonly revokedAt: Date | null
  readonly lastUsedAt: Date | null
}

/** What a server knows of a key. */
export interface KnownKey {
  readonly digest: Buffer
  readonly name: string
  readonly state: ApiKey['state']
  readonly isReadOnly: boolean
  /** When it ends by itself; null where it does not. */
  readonly endsAt: Date | null
  readonly lastUsedAt: Date | null
}

/** A name that a key has cannot be given to another until that one is revoked or has expired. */
export class NameTakenError extends Error {
  override readonly name = 'NameTakenError'
}

/** All access to the table `api_keys`. Every method raises DatabaseUnavailableError when no answer can be had. */
export interface ApiKeyRepository {
  /**
   * Adds a key. `lifetime` is in seconds; without it the key does not expire.
   *
   * @throws {NameTakenError}
   */
  create(name: string, digest: Buffer, lifetime?: number, isReadOnly?: boolean): Promise<ApiKey>

  /**
   * Adds a key in the place of the one that has the name, which ends after `overlap` seconds. Unless `lifetime` says
   * otherwise, the new key lives for as long as the old one was to live; it may do what the old one might. Returns undefined where no key has the name.
   */
  rotate(name: string, digest: Buffer, overlap: number, lifetime?: number): Promise<ApiKey | undefined>

  /** Ends every live key of the name, or only the one with the id, and returns those it ended. */
  revoke(name: string, id?: string): Promise<ApiKey[]>

  /** Every key there ever was, or that had the name, by name, the oldest first. */
  list(name?: string): Promise<ApiKey[]>

  /** How many keys there are in each state. */
  countByState(): Promise<Record<ApiKey['state'], number>>

  /** The keys that let their holders in, and those of the given digests that have ended. */
  live(presented?: readonly Buffer[]): Promise<KnownKey[]>

  /** Notes when keys were last used, of each key at most once a minute. */
  markUsed(uses: readonly { readonly digest: Buffer; readonly usedAt: Date }[]): Promise<void>
}

const STATE = `CASE
  WHEN expires_at <= least(revoked_at, now()) THEN 'expired'
  WHEN revoked_at <= now() THEN 'revoked'
  WHEN revoked_at IS NOT NULL THEN 'ending'
  ELSE 'active'
END`

const API_KEY = `left(encode(digest, 'hex'), 12) AS id, name, ${STATE} AS state, created_at AS "createdAt",
  expires_at AS "expiresAt", revoked_at AS "revokedAt", last_used_at AS "lastUsedAt", is_read_only AS "readOnly"`

const LIVE = `coalesce(least(expires_at, revoked_at), 'infinity') > now()`

export function apiKeyRepository(database: StatementRunner): ApiKeyRepository {
  return {
    async create(name, digest, lifetime, isReadOnly = false) {
      try {
        // An expired key gives its name free. The count makes PostgreSQL end that update before it begins the insert.
        const [key] = await database.query<ApiKey>(
          `WITH freed AS (
             UPDATE api_keys SET revoked_at = expires_at
             WHERE name = $1 AND revoked_at IS NULL AND expires_at <= now()
             RETURNING name
           )
           INSERT INTO api_keys (name, digest, expires_at, is_read_only)
           SELECT $1, $2, now() + make_interval(secs => $3), $4 FROM (SELECT count(*) FROM freed) AS ended
           RETURNING ${API_KEY}`,
          [name, digest, lifetime ?? null, isReadOnly],
        )
        if (key === undefined) throw new Error('an INSERT of one row has returned none')
        return key
      } catch (error) {
        throw isDuplicate(error) ? new NameTakenError(`A key named "${name}" exists already.`) : error
      }
    },

    async rotate(name, digest, overlap, lifetime) {
      const [key] = await database.query<ApiKey>(
        `WITH old AS (
           UPDATE api_keys SET revoked_at = now() + make_interval(secs => $3)
           WHERE name = $1 AND revoked_at IS NULL AND ${LIVE}
           RETURNING expires_at - created_at AS lifetime, is_read_only
         )
         INSERT INTO api_keys (name, digest, expires_at, is_read_only)
         SELECT $1, $2, now() + coalesce(make_interval(secs => $4), lifetime), is_read_only FROM old
         RETURNING ${API_KEY}`,
        [name, digest, overlap, lifetime ?? null],
      )
      return key
    },

    revoke(name, id) {
      return database.query<ApiKey>(
        `UPDATE api_keys SET revoked_at = now()
         WHERE name = $1 AND ${LIVE} AND ($2::text IS NULL OR left(encode(digest, 'hex'), 12) = $2)
         RETURNING ${API_KEY}`,
        [name, id ?? null],
      )
    },

    list(name) {
      return database.query<ApiKey>(
        `SELECT ${API_KEY} FROM api_keys WHERE $1::text IS NULL OR name = $1 ORDER BY name, created_at, digest`,
        [name ?? null],
      )
    },

    async countByState() {
      const rows = await database.query<{ state: ApiKey['state']; count: number }>(
        `SELECT ${STATE} AS state, count(*)::integer AS count FROM api_keys GROUP BY 1`,
      )
      const counts: Record<ApiKey['state'], number> = { active: 0, ending: 0, expired: 0, revoked: 0 }
      for (const { state, count } of rows) counts[state] = count
      return counts
    },

    live(presented = []) {
      // By way of JSON, a column that is not there yet is null: on a schema that is behind, callers are served.
      return database.query<KnownKey>(
        `SELECT digest, name, ${STATE} AS state, least(expires_at, revoked_at) AS "endsAt",
                last_used_at AS "lastUsedAt",
                coalesce((to_jsonb(api_keys) ->> 'is_read_only')::boolean, false) AS "isReadOnly"
         FROM api_keys WHERE ${LIVE} OR digest = ANY ($1::bytea[])`,
        [presented],
      )
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
