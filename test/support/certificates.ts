import { execFile } from 'node:child_process'
import { chmod } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { giveToServer } from './own-server.ts'

const run = promisify(execFile)

/** Makes an authority, and a certificate of its for localhost alone; returns their files, of `server` without the endings. */
export async function makeCertificates(folder: string, name: string) {
  const ca = path.join(folder, `${name}-ca`)
  const server = path.join(folder, `${name}-server`)
  const made = 'req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2'.split(' ')
  const make = (file: string, subject: string, ...more: string[]) =>
    run('openssl', [...made, '-subj', subject, '-keyout', `${file}.key`, '-out', `${file}.crt`, ...more])
  await make(ca, `/CN=${name}`)
  const issuer = ['-CA', `${ca}.crt`, '-CAkey', `${ca}.key`]
  const extensions = ['subjectAltName=DNS:localhost', 'basicConstraints=CA:FALSE']
  await make(server, '/CN=localhost', ...issuer, ...extensions.flatMap((it) => ['-addext', it]))
  return { ca: `${ca}.crt`, server }
}

/** Makes the same for PostgreSQL. Returns the file of the authority, and the settings with which a server encrypts. */
export async function makeServerCertificate(folder: string) {
  const { ca, server } = await makeCertificates(folder, 'postgres')
  const files = { ssl_cert_file: `${server}.crt`, ssl_key_file: `${server}.key` }
  await chmod(files.ssl_key_file, 0o600)
  for (const file of Object.values(files)) await giveToServer(file)
  return { ca, settings: { ssl: 'on', ...files } }
}
