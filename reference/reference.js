/** @import { Description, Operation, Parameter, Response as Documented, SampleRequest, Schema } from './description.ts' */
import { indent } from './json-text.js'
import { samples } from './samples.js'

/** Maximum entries of a list to show: a browser takes seconds to lay out 200,000 of them. */
const MAX_SHOWN_ENTRIES = 1000

const REQUEST_TIMEOUT_MS = 120_000

/** Values that fetch accepts for a header. */
const HEADER_VALUE = /^[\x20-\x7e\x80-\xff]*$/

const MIN_INT64 = -(2n ** 63n)
const MAX_INT64 = 2n ** 63n - 1n

/** The service that served this page, including any path prefix of a proxy. The page can reach no other. */
const base = new URL('v1', location.href).href

/**
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, string>} attributes
 * @param {(Node | string)[]} children
 */
function element(tag, attributes, ...children) {
  const made = document.createElement(tag)
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value)
  made.append(...children)
  return made
}

/** @param {string} id */
function find(id) {
  const found = document.getElementById(id)
  if (found === null) throw new Error(`The page has no element ${id}`)
  return found
}

const keyInput = document.querySelector('input') ?? element('input', {})

/** The API key, also if it was pasted with the scheme in front. */
const enteredKey = () => keyInput.value.trim().replace(/^Bearer +/i, '')

/**
 * @param {'h2' | 'h3'} tag
 * @param {string} id
 * @param {(Node | string)[]} content
 */
const linkedHeading = (tag, id, ...content) => element(tag, {}, element('a', { href: `#${id}` }, ...content))

/**
 * The text of a description, which is Markdown, with what backticks enclose as code.
 *
 * @param {string} text
 */
const inline = (text) =>
  text.split('`').map((part, index) => (index % 2 === 0 ? part : element('code', {}, part)))

/** @param {string} text */
const paragraphs = (text) => text.split('\n\n').map((paragraph) => element('p', {}, ...inline(paragraph)))

/** The strings, numbers and literals of JSON and of the samples. */
const COLORED =
  /("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\\n]|\\.)*`|(?<![\w.-])-?\d[\w.+-]*|\b(?:true|false|null)\b)/

/** @param {string} text */
const inColor = (text) =>
  text.split(COLORED).map((part, index, all) => {
    if (index % 2 === 0) return part
    const ofString = all[index + 1]?.startsWith(':') ? 'key' : 'string'
    return element('span', { class: /^["'`]/.test(part) ? ofString : 'number' }, part)
  })

/**
 * A block of code that can be scrolled with the keyboard.
 *
 * @param {string} name
 * @param {(Node | string)[]} content
 */
const codeBlock = (name, ...content) =>
  element('pre', { tabindex: '0', role: 'group', 'aria-label': name }, element('code', {}, ...content))

/**
 * @param {Schema} schema
 * @returns {(Node | string)[]}
 */
function typeOf({ $ref, type = '', format, items, minimum, maximum }) {
  if ($ref !== undefined) {
    const name = nameIn($ref)
    return [element('a', { href: `#schema-${name}` }, name)]
  }
  if (items !== undefined) return ['array of ', ...typeOf(items)]
  const range = minimum === undefined || maximum === undefined ? '' : ` from ${minimum} to ${maximum}`
  return [`${type}${format === undefined ? '' : ` (${format})`}${range}`]
}

/** @param {string} $ref such as `#/components/schemas/Error` */
const nameIn = ($ref) => $ref.slice($ref.lastIndexOf('/') + 1)

/**
 * @param {Schema} schema
 * @param {Record<string, Schema>} schemas
 */
const resolve = (schema, schemas) => (schema.$ref && schemas[nameIn(schema.$ref)]) || schema

/** @param {Schema} schema */
function allowedValues({ enum: values = [] }) {
  if (values.length === 0) return []
  const codes = values.flatMap((value) => [', ', element('code', {}, value)]).slice(1)
  return [element('p', {}, 'One of ', ...codes, '.')]
}

/**
 * @param {string} name
 * @param {Schema} schema
 */
function renderSchema(name, schema) {
  const id = `schema-${name}`
  const fields = Object.entries(schema.properties ?? {}).flatMap(([field, property]) => {
    const type = [' ', ...typeOf(property), schema.required?.includes(field) ? ', required' : '']
    return [
      element('dt', {}, element('code', {}, field), element('span', { class: 'hint' }, ...type)),
      element('dd', {}, property.description ?? '', ...allowedValues(property)),
    ]
  })
  return element(
    'section',
    { id, tabindex: '-1', class: 'schema' },
    linkedHeading('h3', id, name),
    element('p', {}, schema.description ?? ''),
    ...allowedValues(schema),
    ...(fields.length === 0 ? [] : [element('dl', {}, ...fields)]),
  )
}

/**
 * @param {string} text
 * @param {boolean} isError
 */
const statusBadge = (text, isError) => element('span', { class: isError ? 'status failed' : 'status' }, text)

/**
 * An error shows only its status and meaning until it is opened: there are many, with similar bodies.
 *
 * @param {string} operationId
 * @param {string} status
 * @param {Documented} response
 */
function renderResponse(operationId, status, { description, headers = {}, content }) {
  const id = `${operationId}-${status}`
  const json = content?.['application/json']
  const names = Object.keys(headers).flatMap((name) => [', ', element('code', {}, name)])
  const isError = /^(?:[45]|default)/.test(status)
  const headerHint = names.length === 0 ? [] : ['Headers: ', ...names.slice(1), '. ']
  const bodyHint = json === undefined ? [] : ['Body: ', ...typeOf(json.schema), '.']
  const example = json?.example === undefined ? [] : [JSON.stringify(json.example, null, 2)]
  const summary = element(
    'summary',
    { id },
    element('h4', {}, statusBadge(status, isError), element('span', {}, description)),
  )
  // The address then leads here.
  summary.addEventListener('click', () => history.replaceState(null, '', `#${id}`))
  return element(
    'details',
    isError ? {} : { open: '' },
    summary,
    element('p', { class: 'hint' }, ...headerHint, ...bodyHint),
    ...example.map((text) => codeBlock(`Example of a ${status} body`, ...inColor(text))),
  )
}

/**
 * An input with its label, its description and a place for an error message.
 *
 * @param {string} id
 * @param {HTMLInputElement | HTMLTextAreaElement} input
 * @param {string} label
 * @param {(Node | string)[]} type
 * @param {string} description in Markdown
 */
function renderField(id, input, label, type, description) {
  const hint = element(
    'p',
    { id: `${id}-hint`, class: 'hint' },
    ...inline(`${description}.`.replace('..', '.')),
  )
  const problem = element('p', { id: `${id}-problem`, class: 'problem' })
  input.id = id
  input.setAttribute('aria-describedby', `${id}-hint ${id}-problem`)
  const node = element(
    'div',
    { class: 'field' },
    element('label', { for: id }, label),
    element('span', { class: 'hint' }, ' ', ...type),
    input,
    hint,
    problem,
  )
  /** @param {string} text */
  const complain = (text) => {
    problem.textContent = text
    input.setAttribute('aria-invalid', String(text !== ''))
    if (text !== '') input.focus()
  }
  return { node, complain }
}

/**
 * The error message for a parameter that cannot be sent; empty if it is valid.
 *
 * @param {Parameter} parameter
 * @param {string} value
 */
function problemOf({ name, required, in: place, schema }, value) {
  if (value === '') return required ? `${name} is required.` : ''
  if (schema.format === 'int64') {
    const isInt64 =
      /^(?:0|-?[1-9]\d*)$/.test(value) && BigInt(value) >= MIN_INT64 && BigInt(value) <= MAX_INT64
    return isInt64 ? '' : `${name} must be an integer from ${MIN_INT64} to ${MAX_INT64}, in plain decimal.`
  }
  return place === 'header' && !HEADER_VALUE.test(value)
    ? `${name} has a character that is not allowed in a header.`
    : ''
}

/**
 * The form of an operation. Calls `changed` with the request for the samples, initially and after each input, and shows the
 * response in `answer`.
 *
 * @param {string} path
 * @param {string} method
 * @param {Operation} operation
 * @param {Record<string, Schema>} schemas
 * @param {(request: SampleRequest) => void} changed
 * @param {HTMLElement} answer
 */
function renderForm(path, method, { operationId, parameters = [], requestBody }, schemas, changed, answer) {
  const fields = parameters.map((parameter) => {
    const input = element('input', { autocomplete: 'off', spellcheck: 'false', autocapitalize: 'off' })
    const { name, in: place, required, schema, description } = parameter
    const type = [...typeOf(schema), ` in the ${place}`, required ? ', required' : ', optional']
    return { parameter, input, ...renderField(`${operationId}-${name}`, input, name, type, description) }
  })
  const media = requestBody?.content['application/json']
  const body = media && element('textarea', { rows: '3', spellcheck: 'false', autocapitalize: 'off' })
  if (body) body.value = JSON.stringify(resolve(media.schema, schemas).example ?? {})
  const bodyField =
    body &&
    renderField(
      `${operationId}-body`,
      body,
      'Request body',
      [...typeOf(media.schema), ', required'],
      'JSON, sent as it stands here.',
    )

  /** @param {string} missing replaces an empty path parameter */
  const requestOf = (missing) => {
    let url = base + path
    /** @type {Record<string, string>} */
    const headers = body ? { 'Content-Type': 'application/json' } : {}
    for (const { parameter, input } of fields) {
      const value = input.value.trim()
      if (parameter.in === 'path') {
        url = url.replace(`{${parameter.name}}`, () => encodeURIComponent(value || missing))
      } else if (value !== '') headers[parameter.name] = value
    }
    return { method: method.toUpperCase(), url, headers, ...(body && { body: body.value }) }
  }

  const status = element('p', { role: 'status', class: 'outcome' })
  const button = element('button', { type: 'submit' }, 'Execute')
  const form = element(
    'form',
    { novalidate: '' },
    element('h3', {}, 'Request'),
    ...fields.map(({ node }) => node),
    ...(bodyField ? [bodyField.node] : []),
    button,
    status,
  )
  let isSending = false
  const send = async () => {
    if (isSending) return
    // Never show the response to an earlier request below a new status.
    answer.replaceChildren()
    status.textContent = ''
    const problems = fields.map((field) => ({
      field,
      text: problemOf(field.parameter, field.input.value.trim()),
    }))
    // In reverse order, so that the first one gets the focus.
    for (const { field, text } of problems.toReversed()) field.complain(text)
    if (problems.some(({ text }) => text !== '')) return
    isSending = true
    button.setAttribute('aria-disabled', 'true')
    status.textContent = 'Sending…'
    try {
      const { summary, nodes } = await exchange(requestOf(''))
      status.replaceChildren(...summary)
      answer.replaceChildren(...nodes)
      answer.scrollIntoView({ block: 'nearest' })
    } catch (error) {
      status.textContent = reasonOf(error)
    } finally {
      isSending = false
      button.removeAttribute('aria-disabled')
    }
  }
  form.addEventListener('submit', (event) => {
    event.preventDefault()
    void send()
  })
  form.addEventListener('input', () => changed(requestOf('1')))
  changed(requestOf('1'))
  return form
}

/** @param {unknown} error what `send` has thrown */
function reasonOf(error) {
  if (error instanceof RangeError) return error.message
  return error instanceof DOMException && error.name === 'TimeoutError'
    ? `No response within ${REQUEST_TIMEOUT_MS / 1000} seconds.`
    : 'No response: the service cannot be reached, or the connection was lost. Try again.'
}

/**
 * Sends a request with the API key.
 *
 * @param {SampleRequest} request
 */
async function send({ method, url, headers, body }) {
  const key = enteredKey()
  if (!HEADER_VALUE.test(key)) {
    keyInput.focus()
    throw new RangeError('The API key has a character that is not allowed in a header.')
  }
  return fetch(url, {
    method,
    headers: { ...headers, ...(key === '' ? {} : { Authorization: `Bearer ${key}` }) },
    ...(body === undefined ? {} : { body }),
    cache: 'no-store',
    credentials: 'same-origin',
    signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS),
  })
}

/** Asks the service whether it accepts the entered key, by a request whose response has no body. */
async function checkKey() {
  try {
    const { status } = await send({ method: 'HEAD', url: `${base}/inventory`, headers: {} })
    if (status === 401) return 'The service does not accept this key.'
    return status === 200 ? 'The service accepts this key.' : `The response has the status ${status}.`
  } catch (error) {
    return reasonOf(error)
  }
}

/**
 * Sends a request with the API key and renders its response.
 *
 * @param {SampleRequest} request
 */
async function exchange(request) {
  const sentMs = performance.now()
  const response = await send(request)
  const text = await response.text()
  const tookMs = Math.round(performance.now() - sentMs)
  const type = response.headers.get('content-type') ?? ''
  const indented = /^application\/json\b/.test(type) ? indent(text, MAX_SHOWN_ENTRIES) : undefined
  const isJson = indented !== undefined
  const summary = ['', `${tookMs} ms`]
  if (isJson && response.status >= 400) summary.push(errorMessage(text))
  if (isJson && text.startsWith('[')) {
    const count = text.match(/"petId":/g)?.length ?? 0
    summary.push(`${count.toLocaleString('en')} ${count === 1 ? 'entry' : 'entries'}`)
    const shown = MAX_SHOWN_ENTRIES.toLocaleString('en')
    if (count > MAX_SHOWN_ENTRIES)
      summary.push(`only the first ${shown} are shown, Download saves all of them`)
  }
  const headerText = [...response.headers].map(([name, value]) => `${name}: ${value}`).join('\n')
  return {
    summary: [
      statusBadge(`${response.status} ${response.statusText}`.trim(), response.status >= 400),
      summary.join(' · '),
    ],
    nodes: [
      ...(response.status === 401
        ? [element('p', {}, 'Check the ', element('a', { href: '#key' }, 'API key'), '.')]
        : []),
      element('h4', {}, 'Response body'),
      ...(text === ''
        ? [element('p', { class: 'hint' }, 'The response has no body.')]
        : [
            codeBlock('Response body', ...inColor(indented ?? text)),
            downloadButton(text, isJson ? 'response.json' : 'response.txt'),
          ]),
      element('h4', {}, 'Response headers'),
      codeBlock('Response headers', headerText),
    ],
  }
}

/** @param {string} text */
function errorMessage(text) {
  try {
    const { code, message } = JSON.parse(text)
    return `${code}: ${message}`
  } catch {
    return 'the body is not JSON'
  }
}

/**
 * @param {string} text
 * @param {string} fileName
 */
function downloadButton(text, fileName) {
  const button = element('button', { type: 'button', class: 'secondary' }, 'Download')
  button.addEventListener('click', () => {
    const href = URL.createObjectURL(new Blob([text]))
    element('a', { href, download: fileName }).click()
    URL.revokeObjectURL(href)
  })
  return button
}

/** The selected language of the samples, shared by all operations. */
let language = 'curl'
/** @type {(() => void)[]} */
const languageListeners = []

/** @param {string} operationId */
function renderSamples(operationId) {
  /** @type {SampleRequest | undefined} */
  let request
  const code = element('code', {})
  const choices = Object.keys(samples).map((name) => {
    const input = element('input', { type: 'radio', name: operationId, value: name, 'aria-label': name })
    input.addEventListener('change', () => {
      language = name
      for (const listener of languageListeners) listener()
    })
    return input
  })
  const update = () => {
    for (const input of choices) input.checked = input.value === language
    const sample = Object.entries(samples).find(([name]) => name === language)?.[1]
    if (request && sample) code.replaceChildren(...inColor(sample(request)))
  }
  languageListeners.push(update)
  const copy = element('button', { type: 'button', class: 'secondary' }, 'Copy')
  const copied = element('span', { role: 'status', class: 'hint' })
  copy.addEventListener('click', () => {
    const refused = 'The browser did not allow copying. Select the text instead.'
    const copying = navigator.clipboard.writeText(code.textContent)
    void copying
      .then(
        () => 'Copied.',
        () => refused,
      )
      .then((text) => copied.replaceChildren(text))
  })
  const node = element(
    'div',
    { class: 'samples' },
    element('h3', {}, 'Sample'),
    element('fieldset', { class: 'languages' }, element('legend', {}, 'Language'), ...choices),
    element('pre', { tabindex: '0', role: 'group', 'aria-label': 'Sample' }, code),
    // Browsers provide no clipboard to pages without TLS.
    ...('clipboard' in navigator ? [element('p', {}, copy, ' ', copied)] : []),
    element('p', { class: 'hint' }, 'The samples read the API key from the variable INVENTORY_KEY.'),
  )
  /** @param {SampleRequest} changed */
  const show = (changed) => {
    request = changed
    update()
  }
  return { node, show }
}

/**
 * @param {string} path
 * @param {string} method
 * @param {Operation} operation
 * @param {Record<string, Schema>} schemas
 */
function renderOperation(path, method, operation, schemas) {
  const { operationId: id, summary, description, responses, 'x-stability': stability } = operation
  const { node, show } = renderSamples(id)
  const answer = element('div', { class: 'answer' })
  const form = renderForm(path, method, operation, schemas, show, answer)
  const documented = Object.entries(responses).map((entry) => renderResponse(id, ...entry))
  return element(
    'section',
    { id, tabindex: '-1' },
    linkedHeading('h2', id, summary),
    element(
      'p',
      {},
      element('span', { class: `method ${method}` }, method.toUpperCase()),
      ' ',
      element('code', {}, path),
      ...(stability === undefined ? [] : [' ', element('span', { class: 'badge' }, stability)]),
    ),
    element(
      'div',
      { class: 'columns' },
      element('div', {}, ...paragraphs(description), form),
      element('div', { class: 'panel' }, node, answer),
      element('div', {}, element('h3', {}, 'Responses'), ...documented),
    ),
  )
}

/** @param {Description} description */
function render({ info, servers, paths, components }) {
  const others = servers.filter(({ url }) => /^https?:/.test(url) && url !== base)
  find('about').append(
    ...paragraphs(info.description),
    element(
      'p',
      { class: 'hint' },
      element('code', {}, base),
      ...others.flatMap(({ url, description = 'also' }) => [` · ${description}: `, element('code', {}, url)]),
      ` · version ${info.version} · `,
      element('a', { href: 'openapi.json' }, 'openapi.json'),
    ),
  )
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method, operation })),
  )
  find('operations').append(
    ...operations.map(({ path, method, operation }) =>
      renderOperation(path, method, operation, components.schemas),
    ),
  )
  find('schemas').append(
    ...Object.entries(components.schemas).map(([name, schema]) => renderSchema(name, schema)),
  )
  find('schemas').hidden = false
  find('contents').append(
    ...operations.map(({ operation }) =>
      element('li', {}, element('a', { href: `#${operation.operationId}` }, operation.summary)),
    ),
    element('li', {}, element('a', { href: '#schemas' }, 'Schemas')),
  )
}

find('key-form').addEventListener('submit', async (event) => {
  event.preventDefault()
  find('key-status').textContent = await checkKey()
})
find('key-form').hidden = false
try {
  const response = await fetch('openapi.json')
  if (!response.ok) throw new Error(`The service answered with the status ${response.status}`)
  /** @type {Description} */
  const description = await response.json()
  render(description)
} catch (error) {
  find('failure').textContent =
    `The API description could not be loaded. ${error}. Reload the page to try again.`
}

/** Shows the target of the address. */
function showTarget() {
  const target = document.getElementById(location.hash.slice(1))
  const details = target?.closest('details')
  if (details) details.open = true
  target?.scrollIntoView()
  target?.focus({ preventScroll: true })
}

/** Marks the link to the section that is being read. */
function markCurrent() {
  const links = [...find('contents').querySelectorAll('a')]
  const current = links.findLast(({ hash }) => find(hash.slice(1)).getBoundingClientRect().top < 150)
  for (const link of links) link.ariaCurrent = link === current ? 'location' : null
}

// The browser looked for the target before it was rendered, and does not open it.
showTarget()
addEventListener('hashchange', showTarget)
markCurrent()
addEventListener('scroll', markCurrent, { passive: true })
