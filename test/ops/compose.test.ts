import { readFile } from 'node:fs/promises'
import t from 'tap'
import { parse } from 'yaml'

interface ComposeFile {
  readonly services: { readonly api: { readonly environment: Readonly<Record<string, string | null>> } }
}

/** The variables that a compose file passes on to the service, without those that say where the database is. */
async function settingsIn(file: string): Promise<string[]> {
  const text = await readFile(file, 'utf8')
  const { services }: ComposeFile = parse(text, { merge: true })
  const names = Object.keys(services.api.environment)
  return names.filter((name) => !/^(OPERATOR_)?DATABASE_(URL|URL_FILE|POOLER)$/.test(name)).sort()
}

t.test('both compose files pass on the same settings to the service', async (t) => {
  const settings = await settingsIn('docker-compose.yml')
  t.ok(settings.includes('OTEL_EXPORTER_OTLP_ENDPOINT'))
  t.strictSame(await settingsIn('ops/compose.external-database.yml'), settings)
})
