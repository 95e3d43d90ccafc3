import t from 'tap'
import { tracingSettings } from '../../src/tracing/variables.ts'

t.test('traces only where the variables of OpenTelemetry ask for it', async (t) => {
  const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318' }
  for (const [expected, env] of [
    [false, {}],
    [true, endpoint],
    [true, { OTEL_TRACES_EXPORTER: 'otlp' }],
    [true, { OTEL_TRACES_EXPORTER: 'console, otlp' }],
    [false, { ...endpoint, OTEL_TRACES_EXPORTER: 'console' }],
    [true, { OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'http://collector:4318' }],
    [true, { ...endpoint, OTEL_SDK_DISABLED: 'false', OTEL_TRACES_EXPORTER: '' }],
    [false, { ...endpoint, OTEL_SDK_DISABLED: 'TRUE' }],
    [false, { ...endpoint, OTEL_TRACES_EXPORTER: 'none' }],
  ] as const)
    t.equal(tracingSettings(env).isEnabled, expected, JSON.stringify(env))
})

t.test('a variable that has an effect elsewhere, but not here, is a warning that names it', async (t) => {
  const rows = [
    ['OTEL_PROPAGATORS', 'b3', 'tracecontext or tracecontext,baggage or baggage,tracecontext'],
    ['OTEL_TRACES_EXPORTER', 'otlp,console', 'otlp or none'],
    ['OTEL_METRICS_EXPORTER', 'otlp', 'none'],
    ['OTEL_EXPORTER_OTLP_PROTOCOL', 'grpc', 'http/protobuf'],
    ['OTEL_EXPORTER_OTLP_TRACES_COMPRESSION', 'zstd', 'gzip or none'],
    ['OTEL_EXPORTER_OTLP_METRICS_HEADERS', 'authorization=secret', ''],
    ['OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT', '5', ''],
  ] as const
  const env = Object.fromEntries(rows.map(([name, value]) => [name, value]))
  const warnings = rows.map(([name, , right]) =>
    right === '' ? `${name} has no effect` : `${name} has an effect only with the value ${right}`,
  )
  t.strictSame(tracingSettings(env).warnings, warnings)
  t.strictSame(tracingSettings({ ...env, OTEL_SDK_DISABLED: 'true' }).warnings, [], 'nothing has an effect')
  const asHere = {
    OTEL_PROPAGATORS: 'tracecontext, baggage',
    OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: 'http/protobuf',
    OTEL_LOGS_EXPORTER: 'none',
    OTEL_TRACES_SAMPLER_ARG: '0.1',
    OTEL_SPAN_LINK_COUNT_LIMIT: '3',
    OTEL_LOG_LEVEL: ' ',
    HOTEL_ROOM: '7',
  }
  t.strictSame(tracingSettings(asHere).warnings, [])
})
