import { type Context, context, createContextKey, ROOT_CONTEXT, TraceFlags, trace } from '@opentelemetry/api'
import type { BatchTracer } from '../inventory/updates/queue.ts'

const LINKS = createContextKey('the requests that a statement serves')

/**
 * A statement that serves one request belongs to its trace. One that serves several starts a new trace, and it and each of the
 * requests link to each other. Only sampled requests count, unless none is sampled.
 */
export const batchTracer: BatchTracer = {
  current: () => context.active(),
  run(requests, work) {
    const sampled = requests.filter(isSampled)
    const [only = requests[0] ?? ROOT_CONTEXT] = sampled
    return context.with(sampled.length > 1 ? ROOT_CONTEXT.setValue(LINKS, sampled) : only, work)
  },
}

/** Returns the requests that a statement in this context serves, if there are several. */
export function findLinks(statement: Context): readonly Context[] {
  const links = statement.getValue(LINKS)
  return Array.isArray(links) ? links : []
}

function isSampled(request: Context): boolean {
  return ((trace.getSpanContext(request)?.traceFlags ?? TraceFlags.NONE) & TraceFlags.SAMPLED) !== 0
}
