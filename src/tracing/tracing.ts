import { randomUUID } from 'node:crypto'
import { setTimeout } from 'node:timers/promises'
import { context, DiagLogLevel, diag, propagation, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import { globalErrorHandler, W3CTraceContextPropagator } from '@opentelemetry/core'
import {
  defaultResource,
  detectResources,
  envDetector,
  resourceFromAttributes,
} from '@opentelemetry/resources'
import { BasicTracerProvider, BatchSpanProcessor, type SpanExporter } from '@opentelemetry/sdk-trace-base'
import type { FastifyInstance } from 'fastify'
import type { Logger } from 'pino'
import type { Database } from '../database/database.ts'
import type { BatchTracer } from '../inventory/updates/queue.ts'
import { batchTracer } from './batches.ts'
import { LoggedExporter } from './logged-exporter.ts'
import { traceRequests } from './requests.ts'
import { traceStatements } from './statements.ts'

/** How long shutdown waits for the last spans to be sent. */
const FLUSH_TIMEOUT_MS = 2000

/** Traces what this process does. */
export interface Tracing {
  /** Traces the requests of an app. Call it before any other hook is added. */
  requests(app: FastifyInstance): void
  /** Connects statements with the requests that they serve. */
  readonly batches: BatchTracer
  /** Returns the same database, with its statements traced under the name of the pool. */
  statements(database: Database, pool: string): Database
  /** Sends the remaining spans. */
  close(): Promise<void>
}

/**
 * Starts to trace this process and to send the spans by OTLP. The SDK itself reads the endpoint, the interval and the sampler
 * from the environment (OpenTelemetry, Environment Variable Specification). Imported only if traces are configured.
 */
export function startTracing(
  version: string,
  log: Logger,
  exporter: SpanExporter = new LoggedExporter(log),
): Tracing {
  const onError = (reason: string): void => log.warn({ reason }, 'OpenTelemetry reports an error')
  const nothing = (): void => {}
  diag.setLogger(
    { error: onError, warn: nothing, info: nothing, debug: nothing, verbose: nothing },
    { logLevel: DiagLogLevel.ERROR },
  )
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
    requests: (app) => traceRequests(app, tracer),
    batches: batchTracer,
    statements: (database, pool) => traceStatements(database, pool, tracer),
    async close() {
      await Promise.race([
        provider.shutdown().catch(globalErrorHandler),
        setTimeout(FLUSH_TIMEOUT_MS, undefined, { ref: false }),
      ])
    },
  }
}
