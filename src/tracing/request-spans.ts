import {
  type Context,
  context,
  propagation,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  type Tracer,
  trace,
} from '@opentelemetry/api'
import type { FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'

/** They come every few seconds, and no one looks for the trace of one. */
const untraced = new Set(['/livez', '/readyz'])

/**
 * Returns a plugin that creates a span for every request, from its head to the end of the response, in the trace of its `traceparent` (W3C Trace
 * Context) or in a new one, without query, headers or error messages, which may contain secrets. Its log lines have the ids of trace
 * and span. Register it before any other plugin that adds hooks.
 */
export function traceRequests(tracer: Tracer) {
  const contexts = new WeakMap<FastifyRequest, Context>()

  return fp(
    async (app) => {
      app.addHook('onRequest', (request, { raw }, done) => {
        const route = request.routeOptions.url
        if (route !== undefined && untraced.has(route)) return done()
        const { method } = request
        const caller = propagation.extract(ROOT_CONTEXT, request.headers)
        const span = tracer.startSpan(
          route === undefined ? method : `${method} ${route}`,
          {
            kind: SpanKind.SERVER,
            attributes: {
              'http.request.method': method,
              'url.scheme': request.protocol,
              'url.path': request.url.replace(/[?#].*/, ''),
              'http.route': route,
            },
          },
          caller,
        )
        raw.once('close', () => {
          if (raw.headersSent) span.setAttribute('http.response.status_code', raw.statusCode)
          const error = !raw.writableFinished
            ? 'aborted'
            : raw.statusCode >= 500
              ? String(raw.statusCode)
              : undefined
          if (error !== undefined) {
            span.setAttribute('error.type', error)
            span.setStatus({ code: SpanStatusCode.ERROR })
          }
          span.end()
        })
        const { traceId, spanId } = span.spanContext()
        request.log = request.log.child({ trace_id: traceId, span_id: spanId })
        contexts.set(request, trace.setSpan(caller, span))
        done()
      })

      // Here, and not before: a request that waited for its key would continue in the context of the one that ended the wait.
      app.addHook('preHandler', (request, _reply, done) => {
        context.with(contexts.get(request) ?? ROOT_CONTEXT, done)
      })
    },
    { name: 'tracing' },
  )
}
