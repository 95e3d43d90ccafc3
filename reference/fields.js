import { element, inline } from './elements.js'

/** What fetch refuses in the value of a header. */
const REFUSED = /[^\x20-\x7e\x80-\xff]/

/**
 * A labeled input. What keeps its value from being sent is shown below it until the value changes.
 *
 * @param {HTMLInputElement | HTMLTextAreaElement} input
 * @param {string} id
 * @param {string} label
 * @param {(Node | string)[]} type
 * @param {string} hint in Markdown
 */
export function renderField(input, id, label, type, hint) {
  const problem = element('p', { id: `${id}-problem`, class: 'problem' })
  const described = { id, 'aria-describedby': `${id}-problem ${id}-hint` }
  const asTyped = { autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false' }
  for (const [name, value] of Object.entries({ ...described, ...asTyped })) input.setAttribute(name, value)
  /** @param {string} text */
  const reject = (text) => {
    problem.textContent = text
    input.ariaInvalid = String(text !== '')
  }
  input.addEventListener('input', () => reject(''))
  const node = element(
    'div',
    { class: 'field' },
    element('label', { for: id }, label),
    element('span', { class: 'hint' }, ' ', ...type),
    input,
    problem,
    element('p', { id: `${id}-hint`, class: 'hint' }, ...inline(hint)),
  )
  const value = () => input.value.trim()
  /** Returns whether the value can be sent. */
  const check = () => {
    if (input.required && value() === '') reject(`${label} is required.`)
    else if (REFUSED.test(value())) reject(`${label} has a character that cannot be sent.`)
    else return true
    // A closed element would not take the focus.
    input.closest('details')?.setAttribute('open', '')
    input.focus()
    return false
  }
  return { node, value, check }
}
