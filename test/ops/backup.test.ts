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

interface Situation {
  /** What `pg_dump` does after it has written its file. */
  readonly pgDump: string
  /** Names of the files in the folder of the backups, or in folders in it. */
  readonly files?: readonly string[]
  readonly intervalHours?: string
  readonly keepDays?: string
  readonly command?: 'every' | 'now' | 'health' | 'list'
}

/** Runs `backup.sh`, `every` up to its first pause, with a stand-in for each program that needs a database. */
async function backUpOnce(
  t: Test,
  { pgDump, files = [OLD], intervalHours = '24', keepDays = '14', command = 'every' }: Situation,
) {
  const folder = await temporaryFolder(t, { password: 'secret' })
  const backups = path.join(folder, 'backup')
  const programs = path.join(folder, 'bin')
  await mkdir(backups)
  await mkdir(programs)
  for (const name of files) {
    const file = path.join(backups, name)
    await mkdir(path.dirname(file), { recursive: true })
    await writeFile(file, 'old')
  }
  const script = path.join(folder, 'backup.sh')
  const original = await readFile('ops/backup.sh', 'utf8')
  const moved = original.replace('/run/password/postgres', path.join(folder, 'password'))
  await writeFile(script, moved.replace('cd /backup', `cd '${backups}'`))
  const standIns = {
    pg_dump: `for option; do case $option in --file=*) echo dump >"\${option#--file=}" ;; esac; done; ${pgDump}`,
    pg_restore: 'exit 0',
    psql: 'echo "psql $*"',
    sleep: 'echo "pause of $1 seconds"; kill "$PPID"',
  }
  for (const [name, commands] of Object.entries(standIns))
    await writeFile(path.join(programs, name), `#!/bin/sh\n${commands}\n`, { mode: 0o755 })
  const PATH = `${programs}:${process.env['PATH']}`
  const env = { PATH, BACKUP_INTERVAL_HOURS: intervalHours, BACKUP_KEEP_DAYS: keepDays }
  // In a process group of its own, like a container.
  const { stdout, stderr, code, signal } = await run(t, 'sh', [script, command], { detached: true, env })
    .ended
  return { files: await readdir(backups), stdout, stderr, exitCode: code ?? signal }
}

t.test(
  'a backup that succeeds replaces those that are too old, and the next is due after an interval',
  async (t) => {
    const kept = makeName(13.9)
    const { files, stdout } = await backUpOnce(t, { pgDump: 'exit 0', files: [makeName(14.1), kept] })
    t.match(files.sort(), [kept, /^inventory-.*\.dump$/])
    t.equal(files.length, 2)
    t.match(
      stdout,
      /^backup\.sh: writing (\S+)\n.*COMMENT ON DATABASE inventory IS 'Last backup: \d{4}-\d\d-\d\dT[\d:]{8}Z'\nbackup\.sh: wrote \1, .*\npause of 60 seconds/,
    )
  },
)

t.test('a container that starts again writes no backup before the next one is due', async (t) => {
  for (const [days, isDue] of [
    [0.9, false],
    [1.1, true],
  ] as const) {
    const { files, stdout } = await backUpOnce(t, { pgDump: 'exit 0', files: [makeName(days)] })
    t.equal(files.length, isDue ? 2 : 1, `${days} days`)
    t.match(stdout, 'pause of 60 seconds', `${days} days`)
  }
})

t.test('files of others and folders are neither backups nor deleted', async (t) => {
  const files = ['inventory-before-import.dump', `copies/${OLD}`, 'lost+found/x']
  t.strictSame((await backUpOnce(t, { pgDump: 'exit 0', files })).files.length, 4)
  t.equal((await backUpOnce(t, { pgDump: 'exit 0', files, command: 'list' })).stdout, '')
  const recent = [`copies/${makeName(0)}`]
  t.equal((await backUpOnce(t, { pgDump: 'exit 0', files: recent, command: 'health' })).exitCode, 1)
})

t.test('backups are ordered by the times in their names, and one in the future is unhealthy', async (t) => {
  const files = [makeName(0.5), makeName(1.5), makeName(2.5), 'inventory-20990101T000000Z.dump']
  const { stdout } = await backUpOnce(t, { pgDump: '', files, command: 'list' })
  t.equal(stdout, `${files.slice(0, 3).toReversed().join('\n')}\n`)
  const { exitCode, stderr } = await backUpOnce(t, { pgDump: '', files, command: 'health' })
  t.match(stderr, 'set it, then delete or rename them: inventory-20990101T000000Z.dump\n')
  t.equal(exitCode, 1)
})

t.test('a backup that fails half-way is no backup, deletes none, and is retried soon', async (t) => {
  for (const days of [2, 20]) {
    const { files, stdout } = await backUpOnce(t, { pgDump: 'exit 1', files: [makeName(days)] })
    t.equal(files.length, 1, `${days} days`)
    t.match(stdout, /^backup\.sh: writing .*\npause of 540 seconds/, `${days} days`)
  }
})

t.test('a backup leaves the unfinished one of another container alone, until it is a day old', async (t) => {
  const current = `${makeName(0.5)}.part.AbCdEf`
  const files = [current, `${makeName(3)}.part.AbCdEf`]
  const left = (await backUpOnce(t, { pgDump: 'exit 0', files })).files
  t.match(left.sort(), [current, /\.dump$/])
  t.equal(left.length, 2)
})

t.test('SIGTERM to the container ends a backup and removes its unfinished file', async (t) => {
  const { files, stdout, exitCode } = await backUpOnce(t, { pgDump: 'kill -TERM 0; exit 1' })
  t.strictSame(files, [OLD])
  t.match(stdout, /^backup\.sh: writing \S+\n$/)
  t.equal(exitCode, 143)
})

t.test('a setting that is no whole number from 1 to 9999 is refused by name', async (t) => {
  for (const wrong of ['0', '0.5', '1d', '08', '-1', ' 1', 'abc', '99999999999999999999']) {
    for (const [name, situation] of [
      ['BACKUP_INTERVAL_HOURS', { intervalHours: wrong }],
      ['BACKUP_KEEP_DAYS', { keepDays: wrong }],
      ['BACKUP_KEEP_DAYS', { keepDays: wrong, command: 'now' }],
    ] as const) {
      const { files, stderr, exitCode } = await backUpOnce(t, { pgDump: 'exit 0', ...situation })
      t.strictSame(files, [OLD], `${name} ${wrong}`)
      t.equal(stderr, `backup.sh: ${name} must be a whole number from 1 to 9999, not "${wrong}"\n`)
      t.equal(exitCode, 2, `${name} ${wrong}`)
    }
  }
})

t.test('the container is unhealthy if its newest backup is older than 1.5 intervals', async (t) => {
  const health = async (days: number, intervalHours: string): Promise<unknown> =>
    (await backUpOnce(t, { pgDump: 'exit 1', command: 'health', files: [makeName(days)], intervalHours }))
      .exitCode
  t.equal(await health(1.4, '24'), 0)
  t.equal(await health(1.6, '24'), 1)
  t.equal(await health(1.6, '48'), 0)
})
