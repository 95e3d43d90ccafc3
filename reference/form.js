/** @import { Endpoint, SampleRequest } from './description.ts' */
import { element, typeOf } from './elements.js'
import { base, keyField, renderAnswer } from './exchange.js'
import { renderField } from './fields.js'

/**
 * The form of an operation, and the answer to the request that it sends. Calls `changed` with the request, initially and after each
 * change of a field.
 *
 * @param {Endpoint} endpoint
 * @param {unknown} exampleBody
 * @param {(request: SampleRequest) => void} changed
 */
export function renderForm(endpoint, exampleBody, changed) {
  const { path, method, operationId, parameters = [], requestBody } = endpoint
  const fields = parameters
    // A list that is sent only if it is the one that the caller has: allowed, and of no use.
    .filter(({ name }) => !(method === 'GET' && name === 'If-Match'))
    .map(({ name, in: place, required, schema, description }) => {
      const input = element('input', required ? { required: '' } : {})
      const type = required ? [...typeOf(schema), ', required'] : []
      return { name, place, ...renderField(input, `${operationId}-${name}`, name, type, description) }
    })
  const pathFields = fields.filter(({ place }) => place === 'path')
  const headerFields = fields.filter(({ place }) => place === 'header')
  const media = requestBody?.content['application/json']
  const body = element('textarea', { rows: '3' }, media ? JSON.stringify(exampleBody) : '')

  /**
   * @param {string} missing replaces an empty path parameter
   * @returns {SampleRequest}
   */
  const requestWith = (missing) => {
    let url = base + path
    for (const { name, value } of pathFields)
      url = url.replace(`{${name}}`, () => encodeURIComponent(value() || missing))
    const entered = headerFields.map(({ name, value }) => [name, value()]).filter(([, value]) => value !== '')
    const headers = { ...(media && { 'Content-Type': 'application/json' }), ...Object.fromEntries(entered) }
    return { method, url, headers, ...(media && { body: body.value }) }
  }

  const button = element('button', {}, 'Execute')
  const form = element('form', { novalidate: '' }, element('h3', {}, 'Request'))
  form.append(...pathFields.map(({ node }) => node))
  if (media) {
    const type = [...typeOf(media.schema), ', required']
    const hint = 'JSON, sent as it stands here.'
    form.append(renderField(body, `${operationId}-body`, 'Request body', type, hint).node)
  }
  const headers = headerFields.map(({ node }) => node)
  form.append(element('details', {}, element('summary', {}, 'Headers'), ...headers), button)

  const { answer, clear, send } = renderAnswer()
  form.addEventListener('submit', async (event) => {
    event.preventDefault()
    if (button.ariaDisabled === 'true') return
    // Never show the answer to an earlier request beside a rejected field.
    clear()
    if (![...fields, keyField].every(({ check }) => check())) return
    button.ariaDisabled = 'true'
    await send(requestWith(''))
    button.ariaDisabled = null
  })
  form.addEventListener('input', () => changed(requestWith('1')))
  changed(requestWith('1'))
  return { form, answer }
}
