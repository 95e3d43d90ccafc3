/**
 * A single-file client of the inventory service, for you to copy. It needs `fetch`, which Node 20, Deno, Bun and browsers
 * have, and no package. In a browser, only pages of the service's own origin can use it.
 *
 * A petId is a 64-bit integer. `JSON.parse` and `response.json()` round it above 2^53, to the id of another pet, so this
 * client uses a `bigint` everywhere.
 */

export type PetStatus = 'available' | 'pending' | 'sold'

export interface InventoryItem {
  readonly petId: bigint
  readonly quantity: number
  readonly status: PetStatus
}

/** The codes known today. Others may be added, so branch on those that you handle, and handle the rest by status. */
export type ErrorCode =
  | 'invalid_request'
  | 'unauthorized'
  | 'forbidden'
  | 'not_found'
  | 'method_not_allowed'
  | 'request_timeout'
  | 'payload_too_large'
  | 'unsupported_media_type'
  | 'uri_too_long'
  | 'headers_too_large'
  | 'precondition_failed'
  | 'internal_error'
  | 'service_unavailable'
  | 'nothing_changed'
  | 'too_many_requests'
  // Keeps the known codes in an editor's suggestions.
  | (string & {})

/** A request that failed. */
class FailedRequest extends Error {
  /** Whether the update may have been applied, by any attempt. If not, it is always safe to send it again. */
  mayHaveBeenApplied = false
}

/** An unexpected response. */
export class InventoryError extends FailedRequest {
  override readonly name = 'InventoryError'
  /** The HTTP status. */
  readonly status: number
  /** Branch on it; undefined if the response is not from the service, such as the HTML page of a proxy. */
  readonly code: ErrorCode | undefined
  /** Finds the request in the service's log; undefined if the response has none. */
  readonly requestId: string | undefined
  /** The entry's current tag if an update fails with `precondition_failed`, else undefined. */
  readonly etag: string | undefined

  constructor(message: string, status: number, code?: ErrorCode, response?: Response) {
    super(code === undefined ? message : `${code}: ${message}`)
    this.status = status
    this.code = code
    this.requestId = response?.headers.get('x-request-id') ?? undefined
    this.etag = response?.headers.get('etag') ?? undefined
  }
}

/** No response: no connection, a lost one, or a timeout. `cause` is the error of the last attempt. */
export class InventoryConnectionError extends FailedRequest {
  override readonly name = 'InventoryConnectionError'
}

export interface InventoryOptions {
  /** The base address of the service; ends in `/v1`. */
  readonly baseUrl: string
  readonly apiKey: string
  /** Timeout of one attempt, including its body. */
  readonly timeoutMs?: number
  /** Maximum number of attempts of a request. */
  readonly tries?: number
}

export interface RequestOptions {
  /** Aborts the request and its retries; the promise then rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined
}

export interface UpdateOptions extends RequestOptions {
  /** Updates the entry only if it has this tag, from `entryTag`; otherwise fails with `precondition_failed`. */
  readonly ifMatch?: string | undefined
}

/** The first pause before a retry is at most this long, each further one at most twice as long as the one before. */
const FIRST_PAUSE_MS = 250

/** The longest pause before a retry. If a server asks for a longer one, the request fails. */
const MAX_PAUSE_MS = 60_000

/** Maximum rounds of compare and set in `change`, while other writers keep changing the entry. */
const MAX_ROUNDS = 100

/** Statuses of the service, or of a proxy in front of it, after which a retry may succeed. */
const RETRIED_STATUSES = [429, 502, 503, 504]

/** Codes of Node and Bun if no connection was opened. Deno and browsers do not say that, so their outcome is unknown. */
const CONNECT_CODES: readonly unknown[] = [
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'UND_ERR_CONNECT_TIMEOUT',
]

/** The entity tag of an entry, for `ifMatch`: the `ETag` of an update that returned it. */
export function entryTag({ quantity, status }: InventoryItem): string {
  return `"${quantity}-${status}"`
}

/** The entry that has a tag; undefined if there is no such tag. */
function readTag(petId: bigint, tag: string | undefined): InventoryItem | undefined {
  const [, quantity, status] = /"(\d+)-([a-z]+)"/.exec(tag ?? '') ?? []
  return isPetStatus(status) ? { petId, quantity: Number(quantity), status } : undefined
}

/** Lists and updates the inventory. One instance serves any number of concurrent calls. */
export class InventoryClient {
  readonly #baseUrl: string
  readonly #apiKey: string
  readonly #timeoutMs: number
  readonly #tries: number
  #lastList: { readonly etag: string; readonly items: readonly InventoryItem[] } | undefined

  constructor({ baseUrl, apiKey, timeoutMs = 10_000, tries = 5 }: InventoryOptions) {
    this.#baseUrl = baseUrl.replace(/\/+$/, '')
    this.#apiKey = apiKey
    this.#timeoutMs = timeoutMs
    this.#tries = tries
  }

  /**
   * Lists all entries in ascending petId. Returns the same array as before if nothing has changed since, for which the
   * service sends no body. Throws an InventoryError or an InventoryConnectionError.
   */
  async list({ signal }: RequestOptions = {}): Promise<readonly InventoryItem[]> {
    const known = this.#lastList
    const headers: Record<string, string> = known === undefined ? {} : { 'if-none-match': known.etag }
    const { response, text } = await this.#send('GET', '/inventory', { headers, signal, isRepeatable: true })
    if (response.status === 304 && known !== undefined) return known.items
    const items = readBody(response, text, readItems, false)
    const etag = response.headers.get('etag')
    if (etag !== null) this.#lastList = { etag, items }
    return items
  }

  /**
   * Sets the quantity of one pet and returns its entry. Throws an InventoryError (`not_found` if there is no entry) or
   * an InventoryConnectionError; `mayHaveBeenApplied` says whether the outcome is unknown.
   *
   * Without `ifMatch` it is retried, which is safe if you are the only writer of this entry: the value is absolute. With
   * `ifMatch` it is retried only if it was certainly not applied. After an unknown outcome, a 412 would not tell whether the
   * first attempt or another writer has changed the entry.
   */
  async update(
    petId: bigint,
    quantity: number,
    { ifMatch, signal }: UpdateOptions = {},
  ): Promise<InventoryItem> {
    if (typeof petId !== 'bigint') throw new TypeError('A petId must be a bigint: a number may be rounded.')
    const { response, text } = await this.#send('PATCH', `/inventory/${petId}`, {
      headers: {
        'content-type': 'application/json',
        ...(ifMatch === undefined ? {} : { 'if-match': ifMatch }),
      },
      body: JSON.stringify({ quantity }),
      signal,
      isRepeatable: ifMatch === undefined,
    })
    return readBody(response, text, readItem, true)
  }

  /**
   * Computes the new quantity of one pet from its entry, such as `({ quantity }) => quantity - 1`, and returns the new
   * entry. No other writer's update is lost: if the entry has changed since it was read, the quantity is computed again
   * from the tag in the response. Throws as `update` does.
   */
  async change(
    petId: bigint,
    newQuantity: (item: InventoryItem) => number,
    { signal }: RequestOptions = {},
  ): Promise<InventoryItem> {
    let item = (await this.list({ signal })).find((item) => item.petId === petId)
    if (item === undefined) {
      throw new InventoryError(`No inventory entry exists for petId ${petId}.`, 404, 'not_found')
    }
    for (let round = 1; ; round++) {
      try {
        return await this.update(petId, newQuantity(item), { ifMatch: entryTag(item), signal })
      } catch (error) {
        const hasChanged = error instanceof InventoryError && error.code === 'precondition_failed'
        const current = hasChanged ? readTag(petId, error.etag) : undefined
        if (current === undefined || round === MAX_ROUNDS) throw error
        item = current
      }
    }
  }

  /**
   * Sends a request, several times if it fails, and returns the response with a status below 400. Unless it is repeatable, it
   * is sent again only if it was certainly not applied.
   */
  async #send(
    method: string,
    path: string,
    { headers, body, signal, isRepeatable }: Try & { readonly isRepeatable: boolean },
  ): Promise<Received> {
    const isUpdate = method !== 'GET'
    let mayHaveBeenApplied = false
    for (let tried = 1; ; tried++) {
      // Full jitter, so that clients that failed together do not retry together.
      let pauseMs = Math.random() * FIRST_PAUSE_MS * 2 ** (tried - 1)
      try {
        const received = await this.#try(method, path, { headers, body, signal })
        const { response, text } = received
        if (response.ok || response.status === 304) return received
        const error = readError(response, text)
        const isUnapplied = response.status < 500 || error.code === 'nothing_changed'
        mayHaveBeenApplied ||= isUpdate && !isUnapplied
        error.mayHaveBeenApplied = mayHaveBeenApplied
        const retryAfterMs = readRetryAfter(response)
        const mayRetry = RETRIED_STATUSES.includes(response.status) && (isRepeatable || isUnapplied)
        if (!mayRetry || tried >= this.#tries || retryAfterMs > MAX_PAUSE_MS) throw error
        pauseMs += retryAfterMs
      } catch (error) {
        if (error instanceof InventoryError) throw error
        if (signal?.aborted) throw signal.reason
        const isUnsent = couldNotConnect(error)
        mayHaveBeenApplied ||= isUpdate && !isUnsent
        if (tried >= this.#tries || !(isRepeatable || isUnsent)) {
          const count = tried === 1 ? '1 try' : `${tried} tries`
          const outcome = mayHaveBeenApplied ? 'The update may have been applied.' : 'Nothing was changed.'
          const failure = new InventoryConnectionError(
            `No response to ${method} ${path} in ${count}: ${reasonOf(error)}.${isUpdate ? ` ${outcome}` : ''}`,
            { cause: error },
          )
          failure.mayHaveBeenApplied = mayHaveBeenApplied
          throw failure
        }
      }
      await pause(Math.min(pauseMs, MAX_PAUSE_MS), signal)
    }
  }

  async #try(method: string, path: string, { headers, body, signal }: Try): Promise<Received> {
    const timeout = AbortSignal.timeout(this.#timeoutMs)
    const response = await fetch(this.#baseUrl + path, {
      method,
      headers: { authorization: `Bearer ${this.#apiKey}`, ...headers },
      body: body ?? null,
      // Without these, fetch would answer a 304 from its own cache, and follow a redirect to an HTML page.
      cache: 'no-store',
      redirect: 'manual',
      signal: signal === undefined ? timeout : AbortSignal.any([signal, timeout]),
    })
    return { response, text: await response.text() }
  }
}

interface Try {
  readonly headers: Readonly<Record<string, string>>
  readonly body?: string | undefined
  readonly signal?: AbortSignal | undefined
}

interface Received {
  readonly response: Response
  readonly text: string
}

/**
 * A member `petId` whose value is an integer. It matches nothing within a string: there, a quote is escaped, and so follows
 * a backslash; a quote that follows `{`, `,` or white space begins or ends a string, and what follows an end is not `petId`.
 */
const PET_ID = /(?<=[{,\s])"petId"\s*:\s*(-?(?:0|[1-9]\d*))(?=\s*[,}])/g

/**
 * Reads the JSON of an entry or of a list of them, with each petId as the string of its digits. It converts those numbers
 * to strings and leaves the rest to JSON.parse. A petId that `PET_ID` does not match, such as `5.0`, stays a number,
 * which `toItem` rejects.
 */
export function parseExactly(text: string): unknown {
  return JSON.parse(text.replace(PET_ID, '"petId":"$1"'))
}

/** Reads a list of entries. Throws if the text is anything else. */
export function readItems(text: string): readonly InventoryItem[] {
  const value = parseExactly(text)
  if (!Array.isArray(value)) throw new TypeError('it is not an array')
  return value.map(toItem)
}

/** Reads an entry. Throws if the text is anything else. */
export function readItem(text: string): InventoryItem {
  return toItem(parseExactly(text))
}

function toItem(value: unknown): InventoryItem {
  const { petId, quantity, status } = isRecord(value) ? value : {}
  if (typeof petId !== 'string' || typeof quantity !== 'number' || !isPetStatus(status)) {
    throw new TypeError('it is not an inventory entry')
  }
  return { petId: BigInt(petId), quantity, status }
}

function isPetStatus(value: unknown): value is PetStatus {
  return value === 'available' || value === 'pending' || value === 'sold'
}

function isRecord(value: unknown): value is Partial<Record<string, unknown>> {
  return typeof value === 'object' && value !== null
}

/** Reads the body of a response; throws if it is anything else than expected, such as the login page of a proxy. */
function readBody<T>(response: Response, text: string, read: (text: string) => T, isUpdate: boolean): T {
  try {
    if (response.status !== 200) throw new TypeError('it should have the status 200')
    return read(text)
  } catch (error) {
    const failure = unexpected(response, `: ${error instanceof Error ? error.message : error}`)
    failure.mayHaveBeenApplied = isUpdate
    throw failure
  }
}

/** The error in a response with a status other than 200 and 304. */
function readError(response: Response, text: string): InventoryError {
  let body: unknown
  try {
    body = JSON.parse(text)
  } catch {
    body = undefined
  }
  const { code, message } = isRecord(body) ? body : {}
  if (typeof code !== 'string' || typeof message !== 'string') return unexpected(response, '')
  return new InventoryError(message, response.status, code, response)
}

function unexpected(response: Response, reason: string): InventoryError {
  const type = response.headers.get('content-type') ?? 'no content type'
  return new InventoryError(
    `The response with the status ${response.status} (${type}) is not from the inventory service${reason}`,
    response.status,
    undefined,
    response,
  )
}

/**
 * How long the server asks to wait, in milliseconds, or 0. The header has seconds or a date (RFC 9110, section 10.2.3).
 */
function readRetryAfter({ headers }: Response): number {
  const value = headers.get('retry-after')?.trim() ?? ''
  if (/^\d+$/.test(value)) return Number(value) * 1000
  // Relative to the server's clock, if the response has its date.
  const now = Date.parse(headers.get('date') ?? '')
  const waitMs = Date.parse(value) - (Number.isNaN(now) ? Date.now() : now)
  return Number.isNaN(waitMs) ? 0 : Math.max(0, waitMs)
}

/** Rejects with the signal's reason when it aborts. */
function pause(durationMs: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = (): void => {
      clearTimeout(timer)
      reject(signal?.reason)
    }
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', abort)
      resolve()
    }, durationMs)
    if (signal?.aborted) abort()
    else signal?.addEventListener('abort', abort, { once: true })
  })
}

/** The reason of a failed attempt, which fetch hides in `cause`. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  return error.cause instanceof Error && error.cause.message !== '' ? error.cause.message : error.message
}

/** Whether an attempt failed before anything was sent. */
function couldNotConnect(error: unknown): boolean {
  const { code, syscall } = Object(error instanceof Error ? (error.cause ?? error) : error)
  return syscall === 'connect' || CONNECT_CODES.includes(code)
}
