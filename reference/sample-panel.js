/** @import { SampleRequest } from './description.ts' */
import { codeBlock, element, inColor } from './elements.js'
import { samples } from './samples.js'

/** The selected language, shared by all operations. */
let language = 'curl'

/**
 * An operation's request as a program in the selected language. `show` replaces the request.
 *
 * @param {string} operationId
 */
export function renderSample(operationId) {
  const code = codeBlock('Sample')
  const copied = element('span', { role: 'status', class: 'hint' })
  const choices = Object.keys(samples).map((value) => {
    const choice = element('input', { type: 'radio', name: operationId, value, 'aria-label': value })
    choice.addEventListener('change', () => {
      language = value
      dispatchEvent(new Event('language'))
    })
    return choice
  })
  /** @type {SampleRequest | undefined} */
  let request
  const update = () => {
    copied.textContent = ''
    for (const choice of choices) choice.checked = choice.value === language
    if (request) code.replaceChildren(...inColor(samples[language]?.(request) ?? ''))
  }
  addEventListener('language', update)
  const copy = element('button', { type: 'button' }, 'Copy')
  copy.addEventListener('click', async () => {
    copied.textContent = await navigator.clipboard.writeText(code.textContent).then(
      () => 'Copied.',
      () => 'The browser did not allow copying. Select the text instead.',
    )
  })
  const node = element(
    'div',
    { class: 'card' },
    element('fieldset', { 'aria-label': 'Language' }, ...choices),
    code,
    element('p', { class: 'hint' }, 'Reads the API key from the variable INVENTORY_KEY.'),
    // Browsers provide no clipboard to pages without TLS.
    ...('clipboard' in navigator ? [copy, ' ', copied] : []),
  )
  /** @param {SampleRequest} changed */
  const show = (changed) => {
    request = changed
    update()
  }
  return { node, show }
}
