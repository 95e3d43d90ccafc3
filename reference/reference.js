/** @import { Description, Endpoint, Response as Documented, Schema } from './description.ts' */
import { badge, codeBlock, element, find, inColor, inline, typeOf } from './elements.js'
import { base, keyField } from './exchange.js'
import { renderForm } from './form.js'
import { renderSample } from './sample-panel.js'

/** @param {string[]} texts in Markdown */
const paragraphs = (texts) => texts.map((text) => element('p', {}, ...inline(text)))

/** @type {(tag: 'h2' | 'h3', id: string, text: string) => HTMLElement} */
const linkedHeading = (tag, id, text) => element(tag, {}, element('a', { href: `#${id}` }, text))

/** @param {Endpoint} endpoint */
const stabilityBadge = ({ 'x-stability': stability }) => (stability ? [' ', badge(stability, '')] : [])

/** @param {string[]} names */
const asCode = (names) => names.map((name) => `\`${name}\``).join(', ')

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
      element('dd', {}, property.description ?? ''),
    ]
  })
  return element(
    'section',
    { id },
    linkedHeading('h3', id, name),
    element('p', {}, schema.description ?? ''),
    ...paragraphs(schema.enum ? [`One of ${asCode(schema.enum)}.`] : []),
    ...(fields.length === 0 ? [] : [element('dl', {}, ...fields)]),
  )
}

/**
 * A documented response. An error shows only its status, code and meaning until it is opened: there are many, with similar bodies.
 *
 * @param {string} operationId
 * @param {string} status
 * @param {Documented} response
 */
function renderResponse(operationId, status, { description, headers = {}, content }) {
  const id = `${operationId}-${status}`
  const { schema, example } = content?.['application/json'] ?? {}
  const isError = /^(?:[45]|default)/.test(status)
  // The default stands for errors of any code.
  const code = isError && status !== 'default' ? [element('code', {}, example?.code ?? ''), ' '] : []
  const summary = element(
    'summary',
    { id },
    badge(status, isError ? 'failed' : 'succeeded'),
    ' ',
    ...code,
    description,
  )
  // The address then leads here.
  summary.addEventListener('click', () => history.replaceState(null, '', `#${id}`))
  const body = schema ? [' Body: ', ...typeOf(schema), '.'] : []
  return element(
    'details',
    example && !isError ? { open: '' } : {},
    summary,
    element('p', { class: 'hint' }, ...inline(`Headers: ${asCode(Object.keys(headers))}.`), ...body),
    ...(example
      ? [codeBlock(`Example of a ${status} body`, ...inColor(JSON.stringify(example, null, 2)))]
      : []),
  )
}

/**
 * @param {Endpoint} endpoint
 * @param {Record<string, Schema>} schemas
 */
function renderOperation(endpoint, schemas) {
  const { path, method, operationId: id, summary, description, requestBody, responses } = endpoint
  const { $ref = '' } = requestBody?.content['application/json'].schema ?? {}
  const sample = renderSample(id)
  const { form, answer } = renderForm(endpoint, schemas[$ref.split('/').at(-1) ?? '']?.example, sample.show)
  return element(
    'section',
    { id, class: 'columns' },
    element(
      'div',
      {},
      linkedHeading('h2', id, summary),
      element('p', {}, badge(method, method), ' ', element('code', {}, path), ...stabilityBadge(endpoint)),
      ...paragraphs(description.split('\n\n')),
      form,
    ),
    element('div', { class: 'panel' }, answer, sample.node),
    element(
      'div',
      {},
      element('h3', {}, 'Responses'),
      ...Object.entries(responses).map((entry) => renderResponse(id, ...entry)),
    ),
  )
}

/** @param {Endpoint} endpoint */
function renderOverview(endpoint) {
  const link = element('a', { href: `#${endpoint.operationId}` }, endpoint.summary)
  const name = element('span', {}, link, ...stabilityBadge(endpoint))
  return element('li', {}, badge(endpoint.method, endpoint.method), name, element('code', {}, endpoint.path))
}

/** @param {Endpoint} endpoint */
const renderLink = ({ operationId, summary, method }) =>
  element('li', {}, element('a', { href: `#${operationId}` }, summary, badge(method, method)))

/** @param {Description['servers'][number]} server */
const renderServer = ({ url, description = '' }) =>
  element('li', {}, element('code', {}, url), ' ', element('span', { class: 'hint' }, description))

/** @param {Description} description */
function render({ info, servers, paths, components: { schemas } }) {
  const endpoints = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([name, operation]) => ({ ...operation, path, method: name.toUpperCase() })),
  )
  const [summary = '', ...notes] = info.description.split('\n\n')
  find('summary').append(...inline(summary))
  find('clients').append(...paragraphs(notes))
  find('credentials').append(keyField.node)
  const others = servers.filter(({ url }) => /^https?:/.test(url) && url !== base)
  find('addresses').append(...[{ url: base }, ...others].map(renderServer))
  find('operations').append(...endpoints.map(renderOverview))
  find('introduction').after(...endpoints.map((endpoint) => renderOperation(endpoint, schemas)))
  find('schemas').append(...Object.entries(schemas).map(([name, schema]) => renderSchema(name, schema)))
  document.querySelector('nav li')?.after(...endpoints.map(renderLink))
  for (const part of document.querySelectorAll('[hidden]')) part.removeAttribute('hidden')
}

try {
  const response = await fetch('openapi.json')
  if (!response.ok) throw new Error(`The service answered with the status ${response.status}`)
  render(await response.json())
} catch (error) {
  find('summary').role = 'alert'
  find('summary').textContent = `The API description could not be loaded. ${error}. Reload to try again.`
}

/** Opens what the address leads to, and scrolls to it. */
function showTarget() {
  const target = document.getElementById(location.hash.slice(1))
  target?.closest('details')?.setAttribute('open', '')
  target?.scrollIntoView()
}

/** Marks the link to the section that is being read. */
function markCurrent() {
  const links = [...document.querySelectorAll('nav a')].filter((link) => link instanceof HTMLAnchorElement)
  const current = links.findLast(({ hash }) => find(hash.slice(1)).getBoundingClientRect().top < 150)
  for (const link of links) link.ariaCurrent = link === current ? 'location' : null
}

// The browser looked for the target before it was rendered, and does not open it.
showTarget()
addEventListener('hashchange', showTarget)
markCurrent()
addEventListener('scroll', markCurrent, { passive: true })
