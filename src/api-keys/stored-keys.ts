import { isoTime } from '../database/iso-time.ts'
import type { StatementRunner } from '../database/statement.ts'
import type { TableShape } from '../database/table-shape.ts'

/** The table of the keys. */
export const KEYS_TABLE: TableShape = {
  name: 'api_keys',
  columns: {
    digest: 'bytea NOT NULL',
    name: 'text NOT NULL',
    created_at: 'timestamp with time zone NOT NULL',
    expires_at: 'timestamp with time zone',
    revoked_at: 'timestamp with time zone',
    is_read_only: 'boolean NOT NULL',
  },
  key: 'digest',
}

/** An API key without the key itself, which is not stored. */
export interface ApiKey {
  /** The first 12 hexadecimal digits of its digest: too few to search for the key. */
  readonly id: string
  readonly name: string
  /** `ending`: the key was rotated and is accepted until `revokedAt`. */
  readonly state: 'active' | 'ending' | 'expired' | 'revoked'
  /** Whether the key may be used for reading only. */
  readonly readOnly: boolean
  /** Times are in ISO 8601, in UTC. */
  readonly createdAt: string
  readonly expiresAt: string | null
  readonly revokedAt: string | null
}

/** When the key expires or its revocation takes effect, whichever is first; it may be infinite. */
const END = `coalesce(least(key.expires_at, key.revoked_at), 'infinity')`

const IS_ACTIVE = `${END} > now()`

const STATE = `CASE
  WHEN key.expires_at <= least(key.revoked_at, now()) THEN 'expired'
  WHEN key.revoked_at <= now() THEN 'revoked'
  WHEN key.revoked_at IS NOT NULL THEN 'ending'
  ELSE 'active'
END`

const ID = `left(encode(key.digest, 'hex'), 12)`

const API_KEY = `${ID} AS id, key.name, ${STATE} AS state, key.is_read_only AS "readOnly",
  ${isoTime('key.created_at')} AS "createdAt", ${isoTime('key.expires_at')} AS "expiresAt", ${isoTime('key.revoked_at')} AS "revokedAt"`

/** Creates a key. Without `lifetime`, an interval of PostgreSQL, it never expires. Returns undefined if an active key has the name. */
export async function createKey(
  database: StatementRunner,
  name: string,
  digest: string,
  lifetime?: string,
  isReadOnly = false,
): Promise<ApiKey | undefined> {
  // Frees the name of an expired key. The count makes PostgreSQL complete that update before the insert.
  const [row] = await database.query<ApiKey>(
    `WITH freed AS (
       UPDATE api_keys AS key SET revoked_at = key.expires_at
       WHERE key.name = $1 AND key.revoked_at IS NULL AND key.expires_at <= now()
       RETURNING 1
     )
     INSERT INTO api_keys AS key (name, digest, expires_at, is_read_only)
     SELECT $1, decode($2, 'hex'), now() + $3::interval, $4 FROM (SELECT count(*) FROM freed) AS freed_count
     ON CONFLICT (name) WHERE revoked_at IS NULL DO NOTHING
     RETURNING ${API_KEY}`,
    [name, digest, lifetime ?? null, isReadOnly],
  )
  return row
}

/**
 * Replaces the active key of the name with a new one, which has its permissions and, unless `lifetime` is given, its lifetime, and
 * revokes the old one after the interval `overlap`; those that are still ending, at once, so at most two keys of a name are valid. Returns
 * undefined if no key of the name is active. Needs a transaction.
 */
export async function rotateKey(
  transaction: StatementRunner,
  name: string,
  digest: string,
  overlap: string,
  lifetime?: string,
): Promise<ApiKey | undefined> {
  await lockKeys(transaction, name)
  const [row] = await transaction.query<ApiKey>(
    `WITH old AS (
       UPDATE api_keys AS key SET revoked_at = now() + $3::interval
       WHERE key.name = $1 AND key.revoked_at IS NULL AND ${IS_ACTIVE}
       RETURNING key.name, key.is_read_only, CASE
         WHEN key.expires_at < '9999-01-01' AND isfinite(key.created_at) THEN key.expires_at - key.created_at END AS lifetime
     ), older AS (
       UPDATE api_keys AS key SET revoked_at = now() FROM old WHERE key.name = old.name AND key.revoked_at > now()
     )
     INSERT INTO api_keys AS key (name, digest, expires_at, is_read_only)
     SELECT $1, decode($2, 'hex'), now() + coalesce($4::interval, old.lifetime), old.is_read_only FROM old
     RETURNING ${API_KEY}`,
    [name, digest, overlap, lifetime ?? null],
  )
  return row
}

/** Revokes and returns the valid keys of the name, or the one with the id, also one of a rotation under way. Needs a transaction. */
export async function revokeKeys(transaction: StatementRunner, name: string, id?: string): Promise<ApiKey[]> {
  await lockKeys(transaction, name)
  return transaction.query<ApiKey>(
    `UPDATE api_keys AS key SET revoked_at = now()
     WHERE key.name = $1 AND ${IS_ACTIVE} AND ($2::text IS NULL OR ${ID} = $2)
     RETURNING ${API_KEY}`,
    [name, id ?? null],
  )
}

/**
 * Waits for the rotations and revocations of the name that are under way, and delays later ones. A statement of its own, because one
 * does not see the keys added by what it has waited for.
 */
async function lockKeys(transaction: StatementRunner, name: string): Promise<void> {
  const lock =
    'SELECT FROM api_keys AS key WHERE key.name = $1 ORDER BY key.created_at, key.digest FOR UPDATE'
  await transaction.query(lock, [name])
}

/** Lists all keys by name, oldest first. */
export function listKeys(database: StatementRunner): Promise<ApiKey[]> {
  return database.query<ApiKey>(
    `SELECT ${API_KEY} FROM api_keys AS key ORDER BY key.name, key.created_at, key.digest`,
  )
}

export interface ActiveKey extends Pick<ApiKey, 'id' | 'name' | 'readOnly'> {
  readonly digest: string
  /** How long it will be accepted, by the clock of PostgreSQL; may be infinite. */
  readonly remainingMs: number
}

/** Before PostgreSQL 17, the difference of an infinite time and now is an error. */
export const ACTIVE_KEYS = `SELECT encode(key.digest, 'hex') AS digest, ${ID} AS id, key.name, key.is_read_only AS "readOnly",
    ((extract(epoch FROM ${END}) - extract(epoch FROM now())) * 1000)::float8 AS "remainingMs"
  FROM api_keys AS key WHERE key.digest = ANY ($1::bytea[]) AND ${IS_ACTIVE}`

/** Returns those of the keys that are accepted now. */
export function findActiveKeys(database: StatementRunner, digests: readonly string[]): Promise<ActiveKey[]> {
  return database.query<ActiveKey>(ACTIVE_KEYS, [digests.map((digest) => `\\x${digest}`)])
}

/** Whether any key is accepted now. */
export async function hasActiveKeys(database: StatementRunner): Promise<boolean> {
  return (await database.query(`SELECT FROM api_keys AS key WHERE ${IS_ACTIVE} LIMIT 1`)).length > 0
}

/** Returns when the last key of each name ends, in seconds since 1970. Omits names with a key that never ends. */
export function findKeyEnds(database: StatementRunner): Promise<{ name: string; end: number }[]> {
  return database.query(
    `SELECT key.name, max(extract(epoch FROM ${END}))::float8 AS end FROM api_keys AS key
     WHERE ${IS_ACTIVE} GROUP BY key.name HAVING max(${END}) < 'infinity'`,
  )
}
