/** What the scripts before `reference.js` leave for it; only as much of it as is used. */
declare const LosslessJSON: typeof import('lossless-json')

interface SwaggerUISystem {
  React: { createElement(type: unknown, props: object | null, ...children: unknown[]): unknown }
  getComponent(name: string, isContainer?: boolean): unknown
}

/** A plugin of Swagger UI: swagger.io/docs/open-source-tools/swagger-ui/customization/plugin-api */
type SwaggerUIPlugin = (system: SwaggerUISystem) => {
  wrapComponents?: Record<
    string,
    (original: unknown) => (props: { content: string; contentType: string }) => unknown
  >
  statePlugins?: Record<
    string,
    { wrapActions: Record<string, (original: (value: object) => unknown) => (value: object) => unknown> }
  >
}

declare const SwaggerUIBundle: {
  (options: object): unknown
  readonly presets: { readonly apis: unknown }
}
