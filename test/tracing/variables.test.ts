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
    [false, { OTEL_EXPORTER_OTLP_ENDPOINT: ' ' }],
  ] as const)
    t.equal(tracingSettings(env).isEnabled, expected, JSON.stringify(env))
})

t.test('what the exporter would drop is an error that names the variable, and not its value', async (t) => {
  const addresses = ['secret:4318', '10.0.0.5:4318', 'grpc://secret', 'http://secret ', 'http://:1']
  const headers = ['secret', 'a=', '=secret', 'a=b,secret', 'a=%zz', 'a=1;secret', 'a b=c', 'a=%0A']
  for (const prefix of ['OTEL_EXPORTER_OTLP_', 'OTEL_EXPORTER_OTLP_TRACES_']) {
    for (const [suffix, expected, values] of [
      ['ENDPOINT', 'an address', addresses],
      ['HEADERS', '.* name=value', headers],
    ] as const) {
      const name = `${prefix}${suffix}`
      for (const value of values) {
        const { errors } = tracingSettings({ OTEL_TRACES_EXPORTER: 'otlp', [name]: value })
        t.match(errors, [new RegExp(`^${name} must be ${expected}`)], value)
        t.equal(errors.length, 1, value)
        t.notMatch(errors.join(), 'secret', value)
        t.strictSame(tracingSettings({ OTEL_TRACES_EXPORTER: 'none', [name]: value }).errors, [])
      }
    }
    const usable = {
      OTEL_TRACES_EXPORTER: 'otlp',
      [`${prefix}ENDPOINT`]: 'https://user:password@[::1]:4318/otlp',
      [`${prefix}HEADERS`]: 'authorization=Basic%20eA==, x-tenant = shop 7 ,',
      [`${prefix}PROTOCOL`]: 'grpc',
    }
    t.strictSame(tracingSettings(usable), { isEnabled: true, errors: [] })
  }
})
