import t from 'tap'
import { isTracingEnabled } from '../../src/tracing/enabled.ts'

t.test('traces only where the variables of OpenTelemetry ask for it', async (t) => {
  const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318' }
  for (const [expected, env] of [
    [false, {}],
    [true, endpoint],
    [true, { OTEL_TRACES_EXPORTER: 'otlp' }],
    [true, { OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'http://collector:4318' }],
    [true, { ...endpoint, OTEL_SDK_DISABLED: 'false', OTEL_TRACES_EXPORTER: '' }],
    [false, { ...endpoint, OTEL_SDK_DISABLED: 'TRUE' }],
    [false, { ...endpoint, OTEL_TRACES_EXPORTER: 'none' }],
  ] as const)
    t.equal(isTracingEnabled(env), expected, JSON.stringify(env))
})
