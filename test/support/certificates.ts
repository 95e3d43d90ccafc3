import { execFile } from 'node:child_process'
import path from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)

/** Makes an authority, and a certificate of its for localhost alone; returns their files, of `server` without the endings. */
export async function makeCertificates(folder: string, name: string) {
  const ca = path.join(folder, `${name}-ca`)
  const server = path.join(folder, `${name}-server`)
  const made = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2']
  await run('openssl', [
    ...['req', '-x509', ...made, '-subj', `/CN=${name}`, '-keyout', `${ca}.key`, '-out', `${ca}.crt`],
  ])
  await run('openssl', [
    ...['req', '-x509', ...made, '-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost'],
    ...['-addext', 'basicConstraints=CA:FALSE', '-CA', `${ca}.crt`, '-CAkey', `${ca}.key`],
    ...['-keyout', `${server}.key`, '-out', `${server}.crt`],
  ])
  return { ca: `${ca}.crt`, server }
}
