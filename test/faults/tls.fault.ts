import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import t from 'tap'
import { makeCertificates, makeServerCertificate } from '../support/certificates.ts'
import { succeed } from '../support/command.ts'
import { addMany } from '../support/database.ts'
import { json } from '../support/http.ts'
import { startOwnServer } from '../support/own-server.ts'
import { startProgram, startServer, temporaryFolder } from '../support/program.ts'

const folder = await temporaryFolder(t)
const { ca, settings } = await makeServerCertificate(folder)
const { superuserUrl, query } = await startOwnServer(t, settings)

/** The address of the server with these parameters, under this host name. */
const toUrl = (parameters: Record<string, string>, host = 'localhost'): string =>
  `${superuserUrl.replace('127.0.0.1', host)}?${new URLSearchParams(parameters)}`

t.test('with sslmode=verify-full and the right authority, every connection is encrypted', async (t) => {
  const url = toUrl({ sslmode: 'verify-full', sslrootcert: ca })
  await addMany({ query }, 1)
  const { send, stop } = await startServer(t, { DATABASE_URL: url })
  for (let quantity = 1; quantity <= 10; quantity++) {
    t.equal((await send('PATCH', '/v1/inventory/1', json({ quantity }))).status, 200)
    t.equal((await send('GET', '/v1/inventory')).text, `[{"petId":1,"quantity":${quantity},"status":"sold"}]`)
  }
  t.equal((await send('GET', '/readyz')).status, 200)
  const rows = await query(
    "SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'petstore-inventory server'",
  )
  t.strictSame(rows, [{ ssl: 't' }])
  await succeed(t, url, 'status')
  t.match(await stop(), { code: 0, stderr: '' })
})

t.test('the server and the command line refuse a certificate that cannot be verified', async (t) => {
  const other = await makeCertificates(folder, 'other')
  await writeFile(path.join(folder, 'empty.crt'), '')
  const sslmode = 'verify-full'
  const without = new URL(process.env['TEST_SERVER_URL'] ?? '')
  without.searchParams.set('sslmode', sslmode)
  for (const [url, message] of [
    [toUrl({ sslmode, sslrootcert: other.ca }), /cannot be verified: .*certificate/],
    [toUrl({ sslmode }), /cannot be verified: .*certificate/],
    [toUrl({ sslmode, sslrootcert: ca }, '127.0.0.1'), /cannot be verified: Hostname\/IP does not match/],
    [toUrl({ sslmode, sslrootcert: `${folder}/none` }), /with files that can be read: .*no such file/],
    [toUrl({ sslmode, sslrootcert: `${folder}/empty.crt` }), /cannot be verified/],
    [without.href, /cannot be verified: The server does not support SSL connections/],
  ] as const) {
    const env = { DATABASE_URL: url, PORT: '0' }
    for (const [program, ...args] of [['server'], ['cli', 'export']] as const) {
      const { code, stderr } = await (await startProgram(t, program, { args, env })).ended
      t.equal(code, 1, `${program} ${message}`)
      t.match(stderr, message)
      t.notMatch(stderr, /\n\s+at /, 'no stack trace')
    }
  }
})
