/**
 * A client of the inventory service, for you to copy and adapt. It needs Node 20 or newer, and lossless-json from npm: a petId
 * is a 64-bit integer, which `JSON.parse` and `response.json()` round above 2^53, to the id of another pet.
 */
import { setTimeout } from 'node:timers/promises'
import { parse, parseNumberAndBigInt } from 'lossless-json'

export interface InventoryItem {
  readonly petId: bigint
  readonly quantity: number
  readonly status: 'available' | 'pending' | 'sold'
}

/** A request that failed, after all of its attempts. */
export class InventoryError extends Error {
  override readonly name = 'InventoryError'
  /** Branch on it, or else on the status. Undefined if the response is not from the service, such as a proxy's page. */
  readonly code: string | undefined
  /** The last response, with its status and headers. Undefined if it was lost, incomplete or too late. */
  readonly response: Response | undefined
  /** Whether any attempt may have made the update, or may still make it. */
  mayHaveBeenApplied = false

  constructor(message: string, options: { code?: string; response?: Response; cause?: unknown }) {
    super(message, options)
    this.code = options.code
    this.response = options.response
  }
}

/** Statuses of the service, or of a proxy in front of it, after which a retry may succeed. */
const TEMPORARY_STATUSES = [429, 502, 503, 504]

/** The first pause before a retry is at most this long, each further one at most twice as long as the one before. */
const FIRST_PAUSE_MS = 500

/** The longest `Retry-After` that a request waits for. */
const MAX_RETRY_AFTER_MS = 60_000

export class InventoryClient {
  readonly #baseUrl: string
  readonly #apiKey: string
  readonly #timeoutMs: number
  readonly #attempts: number
  #lastList: { readonly etag: string; readonly items: readonly InventoryItem[] } | undefined

  /** `baseUrl` ends in `/v1`. The timeout is that of one attempt, with its body. */
  constructor(baseUrl: string, apiKey: string, { timeoutMs = 10_000, attempts = 5 } = {}) {
    this.#baseUrl = baseUrl
    this.#apiKey = apiKey
    this.#timeoutMs = timeoutMs
    this.#attempts = attempts
  }

  /** Lists all entries in ascending petId. Returns the same array as before if nothing has changed. */
  async list(): Promise<readonly InventoryItem[]> {
    const last = this.#lastList
    const { response, body } = await this.#send('GET', '/inventory', last && { 'if-none-match': last.etag })
    if (last !== undefined && response.status === 304) return last.items
    if (!Array.isArray(body)) throw new TypeError('The response is not a list of inventory entries.')
    const items = body.map(toItem)
    const etag = response.headers.get('etag')
    if (etag !== null) this.#lastList = { etag, items }
    return items
  }

  /**
   * Sets the quantity of one pet, only if it has the tag `ifMatch`, such as `"12-available"`. Without a tag, the update is retried
   * whatever happened, which is safe if you are the only writer of the entry. With one, it is retried only while nothing was
   * changed: a 412 would not tell whose update was made.
   */
  async update(petId: bigint, quantity: number, ifMatch?: string): Promise<InventoryItem> {
    const headers = { 'content-type': 'application/json', ...(ifMatch && { 'if-match': ifMatch }) }
    const { body } = await this.#send('PATCH', `/inventory/${petId}`, headers, JSON.stringify({ quantity }))
    return toItem(body)
  }

  /** Sends a request until it succeeds, the error is permanent, or a further attempt could repeat an update. */
  async #send(method: string, path: string, headers: Record<string, string> = {}, body?: string) {
    let mayHaveBeenApplied = false
    for (let attempt = 1; ; attempt++) {
      const result = await this.#attempt(path, { method, headers, body: body ?? null }).catch(
        toInventoryError,
      )
      if (!(result instanceof InventoryError)) return result
      const isUnapplied = method === 'GET' || hasChangedNothing(result)
      mayHaveBeenApplied ||= !isUnapplied
      result.mayHaveBeenApplied = mayHaveBeenApplied
      const isTemporary = result.response === undefined || TEMPORARY_STATUSES.includes(result.response.status)
      const mayRetry = isTemporary && (isUnapplied || !('if-match' in headers))
      const retryAfterMs = readRetryAfter(result.response)
      if (!mayRetry || attempt >= this.#attempts || retryAfterMs > MAX_RETRY_AFTER_MS) throw result
      // A random pause, so that clients that failed together do not retry together.
      await setTimeout(retryAfterMs + Math.random() * FIRST_PAUSE_MS * 2 ** (attempt - 1))
    }
  }

  async #attempt(path: string, request: RequestInit): Promise<{ response: Response; body: unknown }> {
    const headers = { ...request.headers, authorization: `Bearer ${this.#apiKey}` }
    const signal = AbortSignal.timeout(this.#timeoutMs)
    const response = await fetch(this.#baseUrl + path, { ...request, headers, signal })
    const text = await response.text()
    if (response.status === 304) return { response, body: undefined }
    const type = response.headers.get('content-type') ?? 'no content type'
    if (!type.startsWith('application/json'))
      throw new InventoryError(`The service did not send this: ${response.status}, ${type}`, { response })
    const body = parse(text, null, parseNumberAndBigInt)
    if (response.ok) return { response, body }
    const { code, message } = Object(body)
    throw new InventoryError(`${code}: ${message}`, { response, code })
  }
}

function toItem(value: unknown): InventoryItem {
  const { petId, quantity, status } = Object(value)
  if (typeof petId !== 'bigint') throw new TypeError('The response is not an inventory entry.')
  return { petId, quantity: Number(quantity), status }
}

function toInventoryError(error: unknown): InventoryError {
  if (error instanceof InventoryError) return error
  // fetch hides the reason.
  const cause = error instanceof Error ? (error.cause ?? error) : error
  return new InventoryError(`There was no complete response: ${cause}`, { cause })
}

/** Whether an attempt was rejected, had the code that says so, or could not connect. */
function hasChangedNothing({ code, response, cause }: InventoryError): boolean {
  if (response !== undefined) return code === 'nothing_changed' || Math.floor(response.status / 100) === 4
  const { code: reason, syscall } = Object(cause)
  return syscall === 'connect' || ['ECONNREFUSED', 'ENOTFOUND', 'UND_ERR_CONNECT_TIMEOUT'].includes(reason)
}

/** Returns for how many milliseconds a response asks to wait, in seconds or with a date. */
function readRetryAfter(response: Response | undefined): number {
  const value = response?.headers.get('retry-after') ?? ''
  const pauseMs = /^\d+$/.test(value) ? Number(value) * 1000 : Date.parse(value) - Date.now()
  return pauseMs > 0 ? pauseMs : 0
}
