// Sets the quantity of one pet and polls the list. Needs Node 20 or newer and nothing else.
//
//   INVENTORY_URL=https://…/v1 INVENTORY_KEY=… node inventory.js PET_ID QUANTITY
//
// QUANTITY is the new quantity, such as 5, or a change, such as +5 or -5. For a client to copy, with types, see
// ../typescript/client.ts.

import { setTimeout } from 'node:timers/promises'

const base = process.env.INVENTORY_URL ?? 'http://127.0.0.1:3000/v1'
const key = process.env.INVENTORY_KEY
const timeoutMs = Number(process.env.INVENTORY_TIMEOUT_SECONDS ?? 10) * 1000
const TRIES = 5
const FIRST_PAUSE_MS = 250
const MAX_PAUSE_MS = 60_000

/** Statuses of the service, or of a proxy in front of it, after which a retry may succeed. */
const RETRIED_STATUSES = [429, 502, 503, 504]

/** An error response; branch on `code`. A 412 of an update has the `etag` of the entry. */
class InventoryError extends Error {}

/**
 * Reads entries. A petId is a 64-bit integer: JSON.parse and response.json() round it above 2^53, to the id of another pet,
 * so its digits become a string first, then a BigInt. Nothing within a string matches, because quotes are escaped there.
 */
function readEntries(text) {
  const exact = text.replace(/(?<=[{,\s])"petId"\s*:\s*(-?(?:0|[1-9]\d*))(?=\s*[,}])/g, '"petId":"$1"')
  return JSON.parse(exact, (name, value) => (name === 'petId' ? BigInt(value) : value))
}

/** How long the server asks to wait, in milliseconds. The header has seconds or a date. */
function retryAfterMs(response) {
  const value = response.headers.get('retry-after') ?? ''
  return /^\d+$/.test(value) ? Number(value) * 1000 : Math.max(0, Date.parse(value) - Date.now()) || 0
}

/** The error in a response; it may come from a proxy, in HTML. */
function errorOf(response, text) {
  try {
    const { code, message } = JSON.parse(text)
    const etag = response.headers.get('etag')
    if (code) return Object.assign(new InventoryError(`${code}: ${message}`), { code, etag })
  } catch {}
  const type = response.headers.get('content-type')
  return new InventoryError(`The response (${response.status}, ${type}) is not from the inventory service`)
}

/**
 * Sends a request, and retries it after a timeout, a lost connection or one of the statuses above. fetch keeps the
 * connection for the next request.
 */
async function send(method, path, { headers = {}, body, tries = TRIES } = {}) {
  for (let tried = 1; ; tried++) {
    // Jitter, so that clients that failed together do not retry together.
    let pauseMs = Math.random() * FIRST_PAUSE_MS * 2 ** (tried - 1)
    try {
      const response = await fetch(base + path, {
        method,
        headers: { authorization: `Bearer ${key}`, ...headers },
        body,
        redirect: 'manual',
        signal: AbortSignal.timeout(timeoutMs),
      })
      const text = await response.text()
      const isJson = response.headers.get('content-type')?.startsWith('application/json')
      if (response.status === 304 || (response.status === 200 && isJson)) return { response, text }
      const waitMs = retryAfterMs(response)
      if (!RETRIED_STATUSES.includes(response.status) || tried >= tries || waitMs > MAX_PAUSE_MS)
        throw errorOf(response, text)
      pauseMs += waitMs
    } catch (error) {
      if (error instanceof InventoryError) throw error
      if (tried >= tries) {
        const outcome = method === 'GET' ? '' : '. It may have been applied'
        throw new Error(
          `No response to ${method} ${path}: ${error.cause?.message || error.message}${outcome}`,
        )
      }
    }
    await setTimeout(pauseMs)
  }
}

/** The list, or undefined if it still has the entity tag. */
async function list(etag) {
  const headers = etag ? { 'if-none-match': etag } : {}
  const { response, text } = await send('GET', '/inventory', { headers })
  if (response.status === 304) return undefined
  return { items: readEntries(text), etag: response.headers.get('etag') }
}

/**
 * Sets the quantity and returns the entry. A retry is safe if you are the only writer of the entry. With a condition it
 * is not retried: a tag says what an entry is, not who made it so, and a retry could not tell its own first attempt from
 * another writer.
 */
async function update(petId, quantity, ifMatch) {
  const { text } = await send('PATCH', `/inventory/${petId}`, {
    headers: { 'content-type': 'application/json', ...(ifMatch ? { 'if-match': ifMatch } : {}) },
    body: JSON.stringify({ quantity }),
    ...(ifMatch ? { tries: 1 } : {}),
  })
  return readEntries(text)
}

/** Adds to the quantity by compare and set: no other writer's update is lost. */
async function add(petId, difference) {
  const item = (await list()).items.find((item) => item.petId === petId)
  if (item === undefined) throw new InventoryError(`not_found: No inventory entry exists for petId ${petId}.`)
  let tag = `"${item.quantity}-${item.status}"`
  for (;;) {
    try {
      return await update(petId, Number(/\d+/.exec(tag)[0]) + difference, tag)
    } catch (error) {
      const current = error.code === 'precondition_failed' && /"\d+-[a-z]+"/.exec(error.etag)
      if (!current) throw error
      tag = current[0]
    }
  }
}

const [petId = '', quantity = ''] = process.argv.slice(2)
const show = (item) => console.log(`${item.petId}: ${item.quantity} ${item.status}`)
try {
  if (!/^-?\d+$/.test(petId) || !/^[+-]?\d+$/.test(quantity))
    throw new Error('usage: inventory.js PET_ID QUANTITY')
  let { items, etag } = await list()
  items.forEach(show)
  const set = /^[+-]/.test(quantity) ? add : update
  show(await set(BigInt(petId), Number(quantity)))
  for (let round = 0; round < 2; round++) {
    const newer = await list(etag)
    console.log(newer === undefined ? 'unchanged' : 'changed')
    etag = newer?.etag ?? etag
  }
} catch (error) {
  console.error(error.message)
  process.exitCode = 1
}
