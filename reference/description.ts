/** The parts of an OpenAPI document that the page shows. */
export interface Description {
  info: { description: string }
  servers: { url: string; description?: string }[]
  paths: Record<string, Record<string, Operation>>
  components: { schemas: Record<string, Schema> }
}

interface Operation {
  operationId: string
  summary: string
  description: string
  'x-stability'?: string
  parameters?: {
    name: string
    in: 'path' | 'header'
    required: boolean
    description: string
    schema: Schema
  }[]
  requestBody?: { content: Content }
  responses: Record<string, Response>
}

/** An operation with its method, in upper case, and its path. */
export type Endpoint = Operation & { method: string; path: string }

export interface Response {
  description: string
  headers?: Record<string, unknown>
  content?: Content
}

type Content = Record<'application/json', { schema: Schema; example?: { code?: string } }>

export interface Schema {
  $ref?: string
  type?: string
  format?: string
  description?: string
  enum?: string[]
  items?: Schema
  properties?: Record<string, Schema>
  required?: string[]
  minimum?: number
  maximum?: number
  example?: unknown
}

/** A request for the page to send and the samples to show, without the API key. */
export interface SampleRequest {
  method: string
  url: string
  headers: Record<string, string>
  body?: string
}
