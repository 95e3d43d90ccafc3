import { execFile } from 'node:child_process'
import { mkdir, readdir, readFile, utimes, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { temporaryFolder } from '../support/program.ts'

const OLD = 'inventory-20260101T000000Z.dump'

/** Runs `backup.sh every` up to its first pause, with a stand-in for each program that needs a database. */
async function backUpOnce(t: Test, pgDump: string): Promise<{ files: string[]; stdout: string }> {
  const folder = await temporaryFolder(t)
  const backups = path.join(folder, 'backup')
  const programs = path.join(folder, 'bin')
  await mkdir(backups)
  await mkdir(programs)
  await writeFile(path.join(backups, OLD), 'old')
  const twentyDaysAgo = Date.now() / 1000 - 20 * 86_400
  await utimes(path.join(backups, OLD), twentyDaysAgo, twentyDaysAgo)
  await writeFile(path.join(folder, 'password'), 'secret')
  const script = path.join(folder, 'backup.sh')
  const text = await readFile('ops/backup.sh', 'utf8')
  await writeFile(
    script,
    text
      .replace('/run/password/postgres', path.join(folder, 'password'))
      .replace('cd /backup', `cd '${backups}'`),
  )
  const standIns = {
    pg_dump: `for option; do case $option in --file=*) echo dump >"\${option#--file=}" ;; esac; done; ${pgDump}`,
    pg_restore: 'exit 0',
    sleep: 'echo "pause of $1 seconds"; kill "$PPID"',
  }
  for (const [name, commands] of Object.entries(standIns))
    await writeFile(path.join(programs, name), `#!/bin/sh\n${commands}\n`, { mode: 0o755 })
  const { stdout } = await promisify(execFile)('sh', [script, 'every'], {
    env: {
      PATH: `${programs}:${process.env['PATH']}`,
      BACKUP_INTERVAL_HOURS: '24',
      BACKUP_KEEP_DAYS: '14',
    },
  })
  return { files: await readdir(backups), stdout }
}

t.test('a backup that succeeds replaces those that are too old, until the next day', async (t) => {
  const { files, stdout } = await backUpOnce(t, 'exit 0')
  t.equal(files.length, 1)
  t.match(files[0], /^inventory-.*\.dump$/)
  t.not(files[0], OLD)
  t.match(stdout, 'pause of 86400 seconds')
})

t.test('a backup that fails half-way is no backup, deletes none, and is retried soon', async (t) => {
  const { files, stdout } = await backUpOnce(t, 'exit 1')
  t.strictSame(files, [OLD])
  t.match(stdout, 'pause of 600 seconds')
})
