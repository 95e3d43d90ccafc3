import { randomUUID } from 'node:crypto'
import { setTimeout } from 'node:timers/promises'
import { context, propagation, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import { globalErrorHandler, setGlobalErrorHandler, W3CTraceContextPropagator } from '@opentelemetry/core'
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto'
import {
  defaultResource,
  detectResources,
  envDetector,
  resourceFromAttributes,
} from '@opentelemetry/resources'
import { BasicTracerProvider, BatchSpanProcessor, type SpanExporter } from '@opentelemetry/sdk-trace-base'
import type { Logger } from 'pino'
import type { Pool } from '../database/pool.ts'
import { traceRequests } from './request-spans.ts'
import { batchTracer, traceStatements } from './statement-spans.ts'

/** How long shutdown waits for the last spans to be sent. */
const FLUSH_TIMEOUT_MS = 500

export type Tracing = ReturnType<typeof startTracing>

/**
 * Starts to trace this process and to send the spans by OTLP. The SDK itself reads the endpoint, the interval and the sampler
 * from the environment. Each failure to send spans is a warning in the log.
 */
export function startTracing(version: string, log: Logger, exporter: SpanExporter = new OTLPTraceExporter()) {
  setGlobalErrorHandler((err) => log.warn({ err }, 'traces cannot be sent'))
  const provider = new BasicTracerProvider({
    resource: defaultResource()
      .merge(
        resourceFromAttributes({
          'service.name': 'petstore-inventory',
          'service.version': version,
          'service.instance.id': randomUUID(),
        }),
      )
      .merge(detectResources({ detectors: [envDetector] })),
    spanProcessors: [new BatchSpanProcessor(exporter)],
  })
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
  propagation.setGlobalPropagator(new W3CTraceContextPropagator())
  trace.setGlobalTracerProvider(provider)
  const tracer = provider.getTracer('petstore-inventory', version)
  return {
    /** The plugin that traces requests. */
    requests: traceRequests(tracer),
    /** Connects statements with the requests that they serve. */
    batches: batchTracer,
    /** Returns the same database, with its statements traced under the name of the pool. */
    statements: (database: Pool, pool: string) => traceStatements(database, pool, tracer),
    /** Sends the remaining spans. */
    async close() {
      await Promise.race([
        provider.shutdown().catch(globalErrorHandler),
        setTimeout(FLUSH_TIMEOUT_MS, undefined, { ref: false }),
      ])
    },
  }
}
