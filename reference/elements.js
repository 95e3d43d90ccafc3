/** @import { Schema } from './description.ts' */

/**
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, string>} attributes
 * @param {(Node | string)[]} children
 */
export function element(tag, attributes, ...children) {
  const made = document.createElement(tag)
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value)
  made.append(...children)
  return made
}

/** @param {string} id */
export function find(id) {
  const found = document.getElementById(id)
  if (found === null) throw new Error(`The page has no element ${id}`)
  return found
}

/** @type {(text: string, kind: string) => HTMLElement} `kind` is a class that gives the badge its color */
export const badge = (text, kind) => element('span', { class: `badge ${kind}` }, text)

/** @param {string} text in Markdown, of which only code in backticks is rendered */
export const inline = (text) =>
  text.split('`').map((part, index) => (index % 2 === 0 ? part : element('code', {}, part)))

/** The strings, numbers and literals of JSON and of the samples. */
const COLORED =
  /("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\\n]|\\.)*`|(?<![\w.-])-?\d[\w.+-]*|\b(?:true|false|null)\b)/

/** @param {string} text */
export const inColor = (text) =>
  text.split(COLORED).map((part, index, all) => {
    if (index % 2 === 0) return part
    const ofString = all[index + 1]?.startsWith(':') ? 'key' : 'string'
    return element('span', { class: /^["'`]/.test(part) ? ofString : 'number' }, part)
  })

/** @type {(name: string, ...content: (Node | string)[]) => HTMLElement} A block of code that can be scrolled with the keyboard. */
export const codeBlock = (name, ...content) =>
  element('pre', { tabindex: '0', role: 'group', 'aria-label': name }, ...content)

/** @type {(schema: Schema) => (Node | string)[]} The type of a value in words, with a link to its schema. */
export const typeOf = ({ $ref, type = '', format, items, minimum, maximum }) => {
  if ($ref !== undefined) {
    const name = $ref.split('/').at(-1) ?? ''
    return [element('a', { href: `#schema-${name}` }, name)]
  }
  if (items !== undefined) return ['array of ', ...typeOf(items)]
  const range = minimum === undefined || maximum === undefined ? '' : ` from ${minimum} to ${maximum}`
  return [`${type}${format === undefined ? '' : ` (${format})`}${range}`]
}
