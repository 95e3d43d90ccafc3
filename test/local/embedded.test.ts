import { cp, readFile, rename, rm, stat, symlink, writeFile } from 'node:fs/promises'
import path from 'node:path'
import t from 'tap'
import { startEmbeddedServer } from '../../src/local/embedded.ts'
import { copyCluster } from '../support/own-server.ts'
import { temporaryFolder } from '../support/program.ts'

const skip = process.getuid?.() !== 0

/** The folder of a server that has run before, below one that any account may enter. */
const directory = path.join(await temporaryFolder(t), 'postgres')
await copyCluster(directory)
const processFile = path.join(directory, 'data', 'postmaster.pid')
const password = path.join(directory, 'password')
const log = path.join(directory, 'postgres.log')

/** Starts a server, uses it and stops it. */
async function use(): Promise<void> {
  const server = await startEmbeddedServer(directory, { fsync: 'off' })
  await server.query('SELECT FROM inventory').finally(server.stop)
}

t.test('a start succeeds if the number of its former process belongs to another program', async (t) => {
  await writeFile(processFile, `${process.pid}\n${directory}/data\n`)
  await use()
  // PostgreSQL refuses a file without a number, which may be one that another server is writing.
  await writeFile(processFile, '')
  const message = /does not start: it exited with code 1: FATAL: .*\. See .*postgres\.log$/
  await t.rejects(use(), { message })
  await rm(processFile)
})

t.test('a server that cannot be used ends, and the reason is named', async (t) => {
  await rename(password, `${password}.right`)
  await writeFile(password, 'of another database\n')
  const message =
    /^The embedded PostgreSQL does not start: password authentication failed .*\. See .*postgres\.log$/
  await t.rejects(use(), { message })
  await t.rejects(stat(processFile), { code: 'ENOENT' })
  await rename(`${password}.right`, password)
})

t.test('a platform without its programs is named', async (t) => {
  t.intercept(process, 'platform', { value: 'win32' })
  const message = /^The embedded PostgreSQL is not .* available for win32-.*Set DATABASE_URL .* WSL 2/
  await t.rejects(startEmbeddedServer(path.join(directory, 'other')), { message })
})

t.test('as root it changes the owner of nothing that its account can replace', { skip }, async (t) => {
  const { uid } = await stat(path.join(directory, 'data'))
  t.not(uid, 0)
  // The account has replaced the files by links.
  const secret = path.join(await temporaryFolder(t), 'secret')
  await rename(password, secret)
  await symlink(secret, password)
  await use()
  t.match(await stat(secret), { uid: 0, mode: 0o100600 })

  await cp(secret, `${secret}.log`)
  await rm(log)
  await symlink(`${secret}.log`, log)
  await t.rejects(use(), { code: 'ELOOP' })
  t.equal(
    await readFile(`${secret}.log`, 'utf8'),
    await readFile(secret, 'utf8'),
    'the log is not written through a link',
  )
})
