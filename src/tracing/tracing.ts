import { randomUUID } from 'node:crypto'
import { setTimeout } from 'node:timers/promises'
import { context, DiagLogLevel, diag, propagation, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import { setGlobalErrorHandler, W3CTraceContextPropagator } from '@opentelemetry/core'
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto'
import {
  defaultResource,
  detectResources,
  envDetector,
  resourceFromAttributes,
} from '@opentelemetry/resources'
import { BasicTracerProvider, BatchSpanProcessor } from '@opentelemetry/sdk-trace-base'
import type { FastifyInstance } from 'fastify'
import type { Logger } from 'pino'
import type { Database } from '../database/pool.ts'
import type { BatchTracer } from '../inventory/updates/queue.ts'
import { batchTracer } from './batches.ts'
import { ExportLog } from './export-log.ts'
import { traceRequests } from './requests.ts'
import { traceStatements } from './statements.ts'

/** How long the last spans have to get out at a stop, in milliseconds. */
const FLUSH_LIMIT = 2000

/** Traces what this process does. */
export interface Tracing {
  /** Traces the requests of an app; to be called before any other hook is added. */
  requests(app: FastifyInstance): void
  /** Tells which requests a statement serves. */
  readonly batches: BatchTracer
  /** The same database, with its statements traced under the name of the pool. */
  statements(database: Database, pool: string): Database
  /** Sends what is not sent yet. */
  close(): Promise<void>
}

/**
 * Traces this process from now on and sends the spans by OTLP. Where to, how often and which ones, the SDK reads from
 * the environment itself (OpenTelemetry, Environment Variable Specification). Imported only where traces are asked for.
 */
export function startTracing(version: string, log: Logger): Tracing {
  const exports = new ExportLog(log)
  setGlobalErrorHandler((error) => exports.failed(error))
  const onFault = (reason: string): void => log.warn({ reason }, 'OpenTelemetry reports an error')
  const nothing = (): void => {}
  diag.setLogger(
    { error: onFault, warn: nothing, info: nothing, debug: nothing, verbose: nothing },
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
    spanProcessors: [new BatchSpanProcessor(exports.watch(new OTLPTraceExporter()))],
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
        provider.shutdown().catch((error: unknown) => exports.failed(error)),
        setTimeout(FLUSH_LIMIT, undefined, { ref: false }),
      ])
    },
  }
}
