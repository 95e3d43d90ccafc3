/** The most characters of a response that are shown: a browser stands still over a list of a million entries. */
const SHOWN = 100_000

/**
 * The text of a JSON response, laid out to be read, with every number as it came. Swagger UI's own layout goes through
 * JavaScript's numbers, and shows 9007199254740993 as 9007199254740992.
 *
 * @param {string} text
 */
function layOut(text) {
  const whole = text.length <= SHOWN ? LosslessJSON.stringify(LosslessJSON.parse(text), undefined, 2) : text
  if (whole === undefined || whole.length <= SHOWN) return whole ?? text
  return `${whole.slice(0, SHOWN)}\n… and more: ${text.length} characters came in all. The command above gets them.`
}

/**
 * Shows JSON responses by `layOut`, and what is no JSON the way Swagger UI does.
 *
 * @type {SwaggerUIPlugin}
 */
const exactNumbers = ({ React, getComponent }) => ({
  wrapComponents: {
    responseBody: (Original) => (props) => {
      try {
        if (!/json/.test(props.contentType)) throw new TypeError('not JSON')
        const body = React.createElement(
          getComponent('HighlightCode', true),
          { language: 'json', downloadable: true, canCopy: true, fileName: 'response.json' },
          layOut(props.content),
        )
        return React.createElement('div', null, React.createElement('h5', null, 'Response body'), body)
      } catch {
        return React.createElement(Original, props)
      }
    },
  },
})

/**
 * Sends requests to the service that this page came from, whatever path a proxy has put before it. No other would do:
 * the page's Content-Security-Policy lets it reach its own origin alone.
 *
 * @type {SwaggerUIPlugin}
 */
const thisServer = () => ({
  wrapComponents: { ServersContainer: () => () => null },
  statePlugins: {
    spec: {
      wrapActions: {
        updateJsonSpec: (update) => (description) =>
          update({ ...description, servers: [{ url: new URL('v1', location.href).href }] }),
      },
    },
  },
})

/**
 * Gives a name to what has none for a screen reader.
 *
 * @type {SwaggerUIPlugin}
 */
const names = ({ React }) => ({
  wrapComponents: {
    TextArea: (Original) => (props) =>
      React.createElement(Original, { ...props, 'aria-label': 'Request body' }),
    CloseIcon: (Original) => (props) =>
      React.createElement(
        'span',
        { className: 'close', role: 'img', 'aria-label': 'Close' },
        React.createElement(Original, props),
      ),
  },
})

const dark = matchMedia('(prefers-color-scheme: dark)')
const followScheme = () => document.documentElement.classList.toggle('dark-mode', dark.matches)
dark.addEventListener('change', followScheme)
followScheme()

SwaggerUIBundle({
  url: 'openapi.json',
  dom_id: '#reference',
  presets: [SwaggerUIBundle.presets.apis],
  plugins: [exactNumbers, thisServer, names],
  displayRequestDuration: true,
  tryItOutEnabled: true,
  syntaxHighlight: { theme: 'obsidian' },
  // Nobody but the service itself sees the description.
  validatorUrl: null,
})
