import { cp, readFile, rename, rm, stat, symlink, writeFile } from 'node:fs/promises'
import path from 'node:path'
import t, { type Test } from 'tap'
import { startEmbeddedServer } from '../../src/local/embedded.ts'
import { copyCluster } from '../support/own-server.ts'
import { temporaryFolder } from '../support/program.ts'

const skip = process.getuid?.() !== 0

/** The folder of a server that has run before, below one that any account may enter. */
async function usedFolder(t: Test): Promise<string> {
  const directory = path.join(await temporaryFolder(t), 'postgres')
  await copyCluster(directory)
  return directory
}

/** Starts a server, uses it and stops it. */
async function use(directory: string): Promise<void> {
  const server = await startEmbeddedServer(directory, { fsync: 'off' })
  await server.query('SELECT FROM inventory').finally(server.stop)
}

t.test('a start succeeds if the number of its former process belongs to another program', async (t) => {
  const [directory, running] = [await usedFolder(t), await usedFolder(t)]
  const other = await startEmbeddedServer(running)
  t.teardown(other.stop)
  await cp(`${running}/data/postmaster.pid`, `${directory}/data/postmaster.pid`)
  await use(directory)
  // PostgreSQL refuses a file without a number, which may be one that another server is writing.
  await writeFile(`${directory}/data/postmaster.pid`, '')
  const message = /does not start: it exited with code 1: FATAL: .*\. See .*postgres\.log$/
  await t.rejects(use(directory), { message })
})

t.test('a server that cannot be used ends, and the reason is named', async (t) => {
  const directory = await usedFolder(t)
  await writeFile(path.join(directory, 'password'), 'of another database\n')
  const message =
    /^The embedded PostgreSQL does not start: password authentication failed .*\. See .*postgres\.log$/
  await t.rejects(use(directory), { message })
  t.rejects(stat(path.join(directory, 'data', 'postmaster.pid')), { code: 'ENOENT' })
})

t.test('as root it changes the owner of nothing that its account can replace', { skip }, async (t) => {
  const directory = await usedFolder(t)
  const { uid } = await stat(path.join(directory, 'data'))
  t.not(uid, 0)
  // The account has replaced the files by links.
  const secret = path.join(await temporaryFolder(t), 'secret')
  await rename(path.join(directory, 'password'), secret)
  await symlink(secret, path.join(directory, 'password'))
  await use(directory)
  t.match(await stat(secret), { uid: 0, mode: 0o100600 })

  await cp(secret, `${secret}.log`)
  await rm(path.join(directory, 'postgres.log'))
  await symlink(`${secret}.log`, path.join(directory, 'postgres.log'))
  await t.rejects(use(directory), { code: 'ELOOP' })
  const [log, original] = [await readFile(`${secret}.log`, 'utf8'), await readFile(secret, 'utf8')]
  t.equal(log, original, 'the log is not written through a link')
})
