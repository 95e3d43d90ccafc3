import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import t, { type Test } from 'tap'
import { run, temporaryFolder } from '../support/program.ts'

/** The name of a backup of some days ago. */
function makeName(days: number): string {
  const time = new Date(Date.now() - days * 86_400_000).toISOString()
  return `inventory-${time.slice(0, 19).replace(/[-:]/g, '')}Z.dump`
}

const OLD = makeName(20)

/** Makes a folder with files of backups, and returns what runs `backup.sh` on it with a stand-in for each program that it needs. */
async function makeStore(t: Test, files: readonly string[] = [OLD], env: Record<string, string> = {}) {
  const folder = await temporaryFolder(t, { password: 'secret' })
  const [backups, programs] = [path.join(folder, 'backup'), path.join(folder, 'bin')]
  await mkdir(programs)
  for (const file of files.map((name) => path.join(backups, name))) {
    await mkdir(path.dirname(file), { recursive: true })
    await writeFile(file, 'old')
  }
  const script = path.join(folder, 'backup.sh')
  const original = await readFile('ops/backup.sh', 'utf8')
  const moved = original.replace('/run/password/postgres', path.join(folder, 'password'))
  await writeFile(script, moved.replace('cd /backup', `cd '${backups}'`))
  /** Runs a command, `every` up to its first pause. `pgDump` is what `pg_dump` does after it has written its file. */
  return async (command: string, pgDump = 'exit 0') => {
    const standIns = {
      pg_dump: `for option; do case $option in --file=*) echo dump >"\${option#--file=}" ;; esac; done; ${pgDump}`,
      psql: 'echo "psql $*"',
      sleep: 'echo "pause of $1 seconds"; kill "$PPID"',
    }
    for (const [name, commands] of Object.entries(standIns))
      await writeFile(path.join(programs, name), `#!/bin/sh\n${commands}\n`, { mode: 0o755 })
    const PATH = `${programs}:${process.env['PATH']}`
    const settings = { PATH, BACKUP_INTERVAL_HOURS: '24', BACKUP_KEEP_DAYS: '14', ...env }
    // In a process group of its own, like a container.
    const { ended } = run(t, 'sh', [script, command], { detached: true, env: settings })
    return { ...(await ended), files: (await readdir(backups)).sort() }
  }
}

t.test('a backup that succeeds replaces those that are too old, and its time is recorded', async (t) => {
  const kept = makeName(13.9)
  const backUp = await makeStore(t, [makeName(14.1), kept])
  const { files, stdout } = await backUp('every')
  t.match(files, [kept, /^inventory-.*\.dump$/])
  t.equal(files.length, 2)
  const output =
    /^backup\.sh: writing (\S+)\n.*COMMENT ON DATABASE inventory IS 'Last backup: \d{4}-\d\d-\d\dT[\d:]{8}Z'\nbackup\.sh: wrote \1, .*\npause of 60 seconds/
  t.match(stdout, output)
})

t.test('a backup is due after an interval, and the container unhealthy after one and a half', async (t) => {
  for (const [days, hours, isDue, code] of [
    [0.9, '24', false, 0],
    [1.1, '24', true, 0],
    [1.4, '24', true, 0],
    [1.6, '24', true, 1],
    [1.6, '48', false, 0],
  ] as const) {
    const backUp = await makeStore(t, [makeName(days)], { BACKUP_INTERVAL_HOURS: hours })
    t.match(await backUp('health'), { code }, `${days} days, ${hours} hours`)
    const { files, stdout } = await backUp('every')
    t.equal(files.length, isDue ? 2 : 1, `${days} days, ${hours} hours`)
    t.match(stdout, 'pause of 60 seconds')
  }
})

t.test('files of others and folders are neither backups nor deleted', async (t) => {
  const backUp = await makeStore(t, ['inventory-before-import.dump', `copies/${makeName(0)}`, 'lost+found/x'])
  t.equal((await backUp('list')).stdout, '')
  t.equal((await backUp('health')).code, 1)
  t.equal((await backUp('now')).files.length, 4)
})

t.test('backups are ordered by the times in their names, and one in the future is unhealthy', async (t) => {
  const past = [makeName(0.5), makeName(1.5), makeName(2.5)]
  const backUp = await makeStore(t, [...past, 'inventory-20990101T000000Z.dump'])
  t.equal((await backUp('list')).stdout, `${past.toReversed().join('\n')}\n`)
  const stderr = /set it, then delete or rename them: inventory-20990101T000000Z\.dump\n/
  t.match(await backUp('health'), { code: 1, stderr })
})

t.test('a backup that fails half-way is no backup, deletes none, and is retried soon', async (t) => {
  const { files, stdout } = await (await makeStore(t))('every', 'exit 1')
  t.strictSame(files, [OLD])
  t.match(stdout, /^backup\.sh: writing .*\npause of 540 seconds/)
})

t.test('a backup leaves the unfinished one of another container alone, until it is a day old', async (t) => {
  const current = `${makeName(0.5)}.part.AbCdEf`
  const { files } = await (await makeStore(t, [current, `${makeName(3)}.part.AbCdEf`]))('now')
  t.match(files, [current, /\.dump$/])
  t.equal(files.length, 2)
})

t.test('SIGTERM to the container ends a backup and removes its unfinished file', async (t) => {
  const { files, stdout, code } = await (await makeStore(t))('every', 'kill -TERM 0; exit 1')
  t.strictSame(files, [OLD])
  t.match(stdout, /^backup\.sh: writing \S+\n$/)
  t.equal(code, 143)
})

t.test('a setting that is no whole number from 1 to 9999 is refused by name', async (t) => {
  for (const wrong of ['0', '0.5', '1d', '08', ' 1', '10000']) {
    for (const name of ['BACKUP_INTERVAL_HOURS', 'BACKUP_KEEP_DAYS']) {
      const stderr = `backup.sh: ${name} must be a whole number from 1 to 9999, not "${wrong}"\n`
      const outcome = await (await makeStore(t, [OLD], { [name]: wrong }))('now')
      t.match(outcome, { code: 2, stderr, files: [OLD] }, `${name} ${wrong}`)
    }
  }
})
