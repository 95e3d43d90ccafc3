import { type ExportResult, ExportResultCode, setGlobalErrorHandler } from '@opentelemetry/core'
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto'
import type { ReadableSpan } from '@opentelemetry/sdk-trace-base'
import type { Logger } from 'pino'

/** Sends spans by OTLP, and logs when that, or anything else in the SDK, starts to fail, and when spans can be sent again. */
export class LoggedExporter extends OTLPTraceExporter {
  readonly #log: Logger
  #isFailing = false

  constructor(log: Logger) {
    super()
    this.#log = log
    setGlobalErrorHandler((error) => this.#failed(error))
  }

  override export(spans: ReadableSpan[], onResult: (result: ExportResult) => void): void {
    super.export(spans, (result) => {
      if (result.code !== ExportResultCode.SUCCESS) this.#failed(result.error)
      else if (this.#isFailing) this.#log.info('traces can be sent again')
      this.#isFailing = result.code !== ExportResultCode.SUCCESS
      onResult(result)
    })
  }

  #failed(error: unknown): void {
    if (!this.#isFailing) this.#log.warn({ reason: reasonOf(error) }, 'traces cannot be sent')
    this.#isFailing = true
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
