import type { Logger } from 'pino'
import { type ApiKeyCache, type ApiKeyIntervals, openApiKeyCache } from '../api-keys/cache.ts'
import { type FixedKey, fixedApiKeys } from '../api-keys/fixed-keys.ts'
import type { FindApiKey } from '../api-keys/key.ts'
import { apiKeyRepository } from '../api-keys/repository.ts'
import type { Database } from '../database/database.ts'

/** The API keys of a service. */
export interface ApiKeys {
  /** Finds a key in API_KEYS or in the cache. */
  readonly find: FindApiKey
  readonly cache: ApiKeyCache
}

export function openApiKeys(
  fixed: readonly FixedKey[],
  database: Database,
  intervals: ApiKeyIntervals,
  log: Logger,
): ApiKeys {
  const cache = openApiKeyCache({
    repository: apiKeyRepository(database),
    onStale: (err) => log.warn({ err }, 'the API keys cannot be read; the cached keys remain valid'),
    onRecovered: () => log.info('the API keys can be read again'),
    onUseNotRecorded: (err) => log.warn({ err }, 'the last use of API keys could not be recorded'),
    intervals,
  })
  const findFixed = fixedApiKeys(fixed)
  return { cache, find: (key) => findFixed(key) ?? cache.find(key) }
}
