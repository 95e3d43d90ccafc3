import { type ExportResult, ExportResultCode } from '@opentelemetry/core'
import type { SpanExporter } from '@opentelemetry/sdk-trace-base'
import type { Logger } from 'pino'

/** Logs when the export of spans starts to fail, and when it works again. */
export class ExportLog {
  readonly #log: Logger
  #isFailing = false

  constructor(log: Logger) {
    this.#log = log
  }

  /** Returns the same exporter, with its results logged. */
  watch(exporter: SpanExporter): SpanExporter {
    return {
      export: (spans, onResult) => exporter.export(spans, (result) => onResult(this.#note(result))),
      forceFlush: async () => exporter.forceFlush?.(),
      shutdown: () => exporter.shutdown(),
    }
  }

  /** Records a failed export. */
  failed(error: unknown): void {
    if (!this.#isFailing) this.#log.warn({ reason: reasonOf(error) }, 'traces cannot be sent')
    this.#isFailing = true
  }

  #note(result: ExportResult): ExportResult {
    if (result.code === ExportResultCode.SUCCESS) {
      if (this.#isFailing) this.#log.info('traces can be sent again')
      this.#isFailing = false
    } else {
      this.failed(result.error)
    }
    return result
  }
}

/** Describes an error in one line. An error of the exporter has the status of the collector's response as its code. */
function reasonOf(error: unknown): string {
  // If the name of the collector has several addresses, the error itself has no message.
  if (error instanceof AggregateError) return error.errors.map(reasonOf).join('; ')
  const message = error instanceof Error ? error.message : String(error)
  const isResponse = error instanceof Error && 'code' in error && typeof error.code === 'number'
  const reason = isResponse ? `the collector replied with ${error.code} ${message}` : message
  return reason.replaceAll(/\s+/g, ' ').trim()
}
