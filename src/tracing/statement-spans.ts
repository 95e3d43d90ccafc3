import {
  type Attributes,
  context,
  type Span,
  SpanKind,
  SpanStatusCode,
  type Tracer,
  trace,
} from '@opentelemetry/api'
import { originalError } from '../database/outcomes.ts'
import type { Pool } from '../database/pool.ts'
import type { Statement } from '../database/statement.ts'
import { textOf } from '../database/statement.ts'
import { linksOf } from './batches.ts'

/**
 * Returns the same database, with a span for each statement. The span has the name of the statement or its first word, but no
 * text, values or messages of PostgreSQL, which may contain values.
 */
export function traceStatements(database: Pool, pool: string, tracer: Tracer): Pool {
  const start = (name: string, operation: string): Span => {
    const attributes: Attributes = {
      'db.system.name': 'postgresql',
      'db.operation.name': operation,
      'db.query.summary': name,
      'db.client.connection.pool.name': pool,
    }
    const shared = linksOf(context.active())
    const links = shared.flatMap((other) => {
      const of = trace.getSpanContext(other)
      return of === undefined ? [] : [{ context: of }]
    })
    const span = tracer.startSpan(name, { kind: SpanKind.CLIENT, attributes, links })
    for (const other of shared) trace.getSpan(other)?.addLink({ context: span.spanContext() })
    return span
  }

  const within = async <Result>(span: Span, work: () => Promise<Result>): Promise<Result> => {
    try {
      return await context.with(trace.setSpan(context.active(), span), work)
    } catch (error) {
      fail(span, error)
      throw error
    } finally {
      span.end()
    }
  }

  return {
    ...database,

    query: (statement, values) =>
      within(start(...namesOf(statement)), () => database.query(statement, values)),

    readRows: (text, onRow) => within(start(...namesOf(text)), () => database.readRows(text, onRow)),
  }
}

function namesOf(statement: Statement): [name: string, operation: string] {
  const operation = /^\s*(\w+)/.exec(textOf(statement))?.[1]?.toUpperCase() ?? 'UNKNOWN'
  return [typeof statement === 'string' ? operation : statement.name, operation]
}

/** Records the code of the error, for example its SQLSTATE, or its name if it has none. */
function fail(span: Span, error: unknown): void {
  const cause = originalError(error)
  const code = cause instanceof Error && 'code' in cause ? cause.code : undefined
  span.setAttribute('error.type', String(code ?? (cause instanceof Error ? cause.name : 'unknown')))
  span.setStatus({ code: SpanStatusCode.ERROR })
}
