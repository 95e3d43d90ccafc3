/** @import { SampleRequest } from './description.ts' */
import { badge, codeBlock, element, inColor } from './elements.js'
import { renderField } from './fields.js'
import { indent } from './json-text.js'

/** Maximum entries of a list to show: a browser takes seconds to lay out 200,000 of them. */
const MAX_SHOWN = 1000

/** The service that served this page, including any path prefix of a proxy. The page can reach no other. */
export const base = new URL('v1', location.href).href

/** The API key that all requests are sent with. */
export const keyField = renderField(
  element('input', { type: 'password' }),
  'key',
  'API key',
  [],
  'Sent to this service only, and forgotten when you leave the page. The operator creates keys with ' +
    '`inventory keys create --name <name>`; with `--read-only`, a key can list the stock but not change it.',
)

/** The answer to the last request. The status and what it means come first, and are announced. */
export function renderAnswer() {
  const status = element('p', { role: 'status' })
  const details = element('div', {})
  /** @param {(Node | string)[]} summary */
  const show = (...summary) => {
    status.replaceChildren(...summary)
    details.replaceChildren()
    status.scrollIntoView({ block: 'nearest' })
  }
  /** @param {SampleRequest} request */
  const send = async (request) => {
    show('Sending…')
    await exchange(request).then(
      (received) => {
        show(...summaryOf(received))
        details.append(...detailsOf(received))
      },
      () => {
        const advice = request.method === 'GET' ? 'Try again.' : 'The update may have been made.'
        const cause = 'The service cannot be reached, or the connection was lost.'
        show(badge('No response', 'failed'), ` ${cause} ${advice}`)
      },
    )
  }
  return { answer: element('div', {}, status, details), clear: () => show(), send }
}

/**
 * Sends a request with the API key.
 *
 * @param {SampleRequest} request
 */
async function exchange({ method, url, headers, body }) {
  // Also if the key was pasted with the scheme in front.
  const key = keyField.value().replace(/^Bearer +/i, '')
  const response = await fetch(url, {
    method,
    headers: { ...headers, ...(key && { Authorization: `Bearer ${key}` }) },
    ...(body && { body }),
    cache: 'no-store',
    signal: AbortSignal.timeout(120_000),
  })
  return { response, text: await response.text() }
}

/** @param {{ response: Response, text: string }} received */
function summaryOf({ response: { status, statusText }, text }) {
  const isError = status >= 400
  return [
    badge(`${status} ${statusText}`.trim(), isError ? 'failed' : 'succeeded'),
    isError ? errorIn(text) : countIn(text),
    ...(status === 401 ? [' ', element('a', { href: '#key' }, 'Enter an API key')] : []),
  ]
}

/** @param {string} text */
function errorIn(text) {
  try {
    const { code, message } = JSON.parse(text)
    return ` ${code}: ${message}`
  } catch {
    return ' The body is not an Error of the service.'
  }
}

/** @param {string} text */
function countIn(text) {
  if (!text.startsWith('[')) return ''
  const count = text.match(/"petId":/g)?.length ?? 0
  const entries = ` ${count.toLocaleString('en')} ${count === 1 ? 'entry' : 'entries'}`
  return count > MAX_SHOWN ? `${entries}, showing the first ${MAX_SHOWN.toLocaleString('en')}` : entries
}

/** @param {string} text */
function truncated(text) {
  const entries = text.split('},{')
  return entries.length > MAX_SHOWN ? `${entries.slice(0, MAX_SHOWN).join('},{')}},…]` : text
}

/** @param {{ response: Response, text: string }} received */
function detailsOf({ response: { headers }, text }) {
  const isJson = /^application\/json\b/.test(headers.get('content-type') ?? '')
  // Callers use the first two. Those of the connection say nothing about the response.
  const lines = Object.entries({ etag: '', 'x-request-id': '', ...Object.fromEntries(headers) })
    .filter(([name, value]) => value !== '' && !/^(?:connection|date|keep-alive)$/.test(name))
    .map(([name, value]) => `${name}: ${value}`)
  const body = inColor(isJson ? indent(truncated(text)) : text)
  return [
    ...(text === '' ? [] : [codeBlock('Response body', ...body)]),
    codeBlock('Response headers', lines.join('\n')),
  ]
}
