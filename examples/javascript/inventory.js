// Sets the stock of one pet and follows the list. Needs Node 20 or newer, and lossless-json.
//
//   INVENTORY_URL=https://…/v1 INVENTORY_KEY=… node inventory.js PET_ID QUANTITY

import { setTimeout } from 'node:timers/promises'
import { isLosslessNumber, parse } from 'lossless-json'

const base = process.env.INVENTORY_URL ?? 'http://127.0.0.1:3000/v1'
const key = process.env.INVENTORY_KEY
const ATTEMPTS = 5

/** What the service, or a proxy before it, says when it cannot answer now. */
const AGAIN = [502, 503, 504]

/**
 * A petId is a 64-bit integer. JSON.parse and response.json() round it above 2^53, to the id of another pet, so it is
 * read as a BigInt here; and it is never a number anywhere else.
 */
const readJson = (text) =>
  parse(text, (name, value) => {
    if (!isLosslessNumber(value)) return value
    return name === 'petId' ? BigInt(value.value) : Number(value.value)
  })

/**
 * Sends a request, and again where the service cannot answer now or nothing came back. That is safe for updates, too:
 * they are absolute values. fetch keeps the connection for the next request.
 */
async function send(method, path, { headers = {}, body } = {}) {
  for (let attempt = 1; ; attempt++) {
    let wait = attempt
    try {
      const response = await fetch(base + path, {
        method,
        headers: { authorization: `Bearer ${key}`, ...headers },
        body,
        signal: AbortSignal.timeout(10_000),
      })
      const text = await response.text()
      if (response.ok || response.status === 304) return { response, text }
      if (!AGAIN.includes(response.status) || attempt === ATTEMPTS) {
        const { code, message } = JSON.parse(text)
        throw Object.assign(new Error(`${code}: ${message}`), { code })
      }
      wait = Number(response.headers.get('retry-after') ?? 1)
    } catch (error) {
      if (error.code !== undefined || attempt === ATTEMPTS) throw error
    }
    await setTimeout(wait * 1000)
  }
}

/** The list, or undefined where it is still the one that the entity tag names. */
async function list(etag) {
  const { response, text } = await send(
    'GET',
    '/inventory',
    etag ? { headers: { 'if-none-match': etag } } : {},
  )
  if (response.status === 304) return undefined
  return { items: readJson(text), etag: response.headers.get('etag') }
}

async function update(petId, quantity) {
  const { text } = await send('PATCH', `/inventory/${petId}`, {
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ quantity }),
  })
  return readJson(text)
}

const [petId, quantity] = process.argv.slice(2)
const show = (item) => console.log(`${item.petId}: ${item.quantity} ${item.status}`)
try {
  const before = await list()
  before.items.forEach(show)
  show(await update(BigInt(petId), Number(quantity)))
  const after = await list(before.etag)
  console.log(after === undefined ? 'unchanged' : 'changed')
  const again = await list(after?.etag ?? before.etag)
  console.log(again === undefined ? 'unchanged' : 'changed')
} catch (error) {
  console.error(error.message, error.cause?.message ?? '')
  process.exitCode = 1
}
