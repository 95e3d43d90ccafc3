import { randomUUID } from 'node:crypto'
import { setTimeout } from 'node:timers/promises'
import { context, DiagLogLevel, diag, propagation, trace } from '@opentelemetry/api'
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
import { batchTracer } from './batches.ts'
import { traceRequests } from './request-spans.ts'
import { traceStatements } from './statement-spans.ts'

/** How long shutdown waits for the last spans to be sent. */
const FLUSH_TIMEOUT_MS = 500

export type Tracing = ReturnType<typeof startTracing>

/**
 * Starts to trace this process and to send the spans by OTLP. The SDK itself reads the endpoint, the interval and the sampler
 * from the environment. Each failure to send spans is a warning in the log.
 */
export function startTracing(version: string, log: Logger, exporter: SpanExporter = new OTLPTraceExporter()) {
  const onError = (reason: string): void => log.warn({ reason }, 'OpenTelemetry reports an error')
  const nothing = (): void => {}
  diag.setLogger(
    { error: onError, warn: nothing, info: nothing, debug: nothing, verbose: nothing },
    { logLevel: DiagLogLevel.ERROR },
  )
  setGlobalErrorHandler((error) => log.warn({ reason: describeError(error) }, 'traces cannot be sent'))
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

/** Describes an error in one line. The code of one of the exporter is the status of the collector's response. */
function describeError(error: unknown): string {
  // If the name of the collector has several addresses, the error itself has no message.
  if (error instanceof AggregateError) return error.errors.map(describeError).join('; ')
  const message = error instanceof Error ? error.message : String(error)
  const isResponse = error instanceof Error && 'code' in error && typeof error.code === 'number'
  const reason = isResponse ? `the collector replied with ${error.code} ${message}` : message
  return reason.replaceAll(/\s+/g, ' ').trim()
}
