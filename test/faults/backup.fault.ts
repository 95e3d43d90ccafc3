import { mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import t, { type Test } from 'tap'
import { copyProject, shellIn } from '../support/deployment.ts'
import { freePort } from '../support/ports.ts'
import { temporaryFolder } from '../support/program.ts'

const BACKUP = 'docker compose run --rm --no-deps -T backup'
const STOCK = 'petId,quantity,status\n1,5,available\n2,0,sold\n'

type Outcome = Readonly<Record<'stdout' | 'stderr', string>> & { readonly code: number }
type Deployment = Awaited<ReturnType<typeof startDeployment>>

/** Starts the service with its backups, an inventory and a key. */
async function startDeployment(t: Test) {
  const folder = path.join(await temporaryFolder(t), 'store')
  await mkdir(folder)
  const fixed = [`COMPOSE_PROJECT_NAME=backup-${process.pid}`, `PUBLISH=127.0.0.1:${await freePort()}`]
  const sh = shellIn(folder)
  const run = (command: string): Promise<Outcome> =>
    sh(command).then(
      (stdout) => ({ code: 0, stdout, stderr: '' }),
      ({ code, stdout, stderr }: Outcome) => ({ code, stdout, stderr }),
    )
  /** Replaces the settings in `.env`, except for the project and the port. */
  const set = (...settings: string[]): Promise<void> =>
    writeFile(path.join(folder, '.env'), [...fixed, ...settings, ''].join('\n'))
  await set('COMPOSE_PROFILES=backup')
  await sh(`umask 077; ${copyProject}`)
  await sh('chmod -R go= .')
  t.teardown(async () => {
    // Those of an external database do not name all volumes.
    await set('COMPOSE_PROFILES=backup')
    await sh('docker compose down --volumes --remove-orphans --rmi local --timeout 1')
  })
  await sh('docker compose build --quiet && docker compose up --quiet-pull --detach --wait')
  await sh(
    `printf '${STOCK.replaceAll('\n', '\\n')}' | docker compose exec -T api inventory import - --rows 2`,
  )
  await sh('docker compose exec -T api inventory keys create --name billing')
  return { run, sh, set }
}

/** Writes a backup. Resolves with its name. */
async function backUp({ sh }: Deployment): Promise<string> {
  const [, name = ''] = /wrote (\S+),/.exec(await sh(`${BACKUP} now`)) ?? []
  return name
}

const exported = ({ sh }: Deployment): Promise<string> => sh('docker compose exec -T api inventory export')

t.test('backups of a deployment by compose, in a clone that was made with umask 077', async (t) => {
  const store = await startDeployment(t)

  t.test('any name in the folder of the backups is the name of a backup', async (t) => {
    await store.sh(
      `docker compose exec -T backup sh -c 'cd /backup && mkdir -m 0 lost+found && cp *.dump inventory-20990101T000000Z.dump'`,
    )
    const name = await backUp(store)
    t.match(await store.sh(`${BACKUP} drill`), `restored ${name}`, 'a time in the future is not the newest')
    t.equal((await store.run('docker compose exec -T backup backup.sh health')).code, 1)
    await store.sh("docker compose exec -T backup sh -c 'rm -r /backup/lost+found /backup/inventory-2099*'")
    const drills = await Promise.all([1, 2].map(() => store.sh(`${BACKUP} drill`)))
    for (const drill of drills) t.match(drill, /restored \S+: 2 entries/, 'two drills at once')
    for (const written of await Promise.all([1, 2].map(() => backUp(store))))
      t.match(await store.sh(`${BACKUP} drill ${written}`), ': 2 entries', 'two backups at once')
    for (const other of ["it's.dump", '-x.dump', 'a b\\c.dump', '"; $(id).dump']) {
      const quoted = `'${other.replaceAll("'", String.raw`'\''`)}'`
      await store.sh(`docker compose exec -T backup cp /backup/${name} /backup/${quoted}`)
      const drill = await store.sh(`${BACKUP} drill ${quoted}`)
      t.equal(drill.split('\n')[0]?.split(' into ')[0], `backup.sh: restoring ${other}`)
      t.equal(drill.split('\n')[1]?.split(': 2 entries')[0], `backup.sh: restored ${other}`)
    }
    for (const missing of ["isn't.dump", '-none', '--', '*', '']) {
      const { code, stdout, stderr } = await store.run(`${BACKUP} restore "${missing}"`)
      t.strictSame({ code, stdout }, { code: 1, stdout: '' })
      t.match(stderr, `there is no backup ${missing || 'yet'};`)
    }
    const used = await store.run(`${BACKUP} restore ${name}`)
    t.match(used.stderr, /the database is in use .*"docker compose stop api api-2"/)
    t.equal(used.code, 1, 'a database in use is not replaced')
  })

  t.test('a drill with a subscription in the database leaves nothing behind', async (t) => {
    const sql = (statement: string): Promise<string> =>
      store.sh(
        `docker compose exec -T db psql --username=inventory --no-align --tuples-only --command="${statement}"`,
      )
    await sql("CREATE SUBSCRIPTION feed CONNECTION 'host=nowhere' PUBLICATION feed WITH (connect = false)")
    await backUp(store)
    t.match(await store.sh(`${BACKUP} drill`), ': 2 entries')
    t.notMatch(await sql('SELECT datname FROM pg_database'), 'inventory_drill')
    await sql('ALTER SUBSCRIPTION feed SET (slot_name = NONE)')
    await sql('DROP SUBSCRIPTION feed')
  })

  t.test('wrong settings and an external database fail `up`, and the log says why', async (t) => {
    const external = 'COMPOSE_FILE=docker-compose.yml:ops/compose.external-database.yml'
    for (const [settings, message] of [
      [['BACKUP_KEEP_DAYS=abc'], 'BACKUP_KEEP_DAYS must be a whole number from 1 to 9999, not "abc"'],
      [[external, 'DATABASE_URL=postgres://db.example.com/x'], 'DATABASE_URL names another; use pg_dump'],
    ] as const) {
      await store.set('COMPOSE_PROFILES=backup', ...settings)
      t.equal((await store.run('docker compose up --quiet-pull --detach --wait')).code, 1)
      t.match(await store.sh('docker compose logs backup-settings'), message)
    }
    await store.set('COMPOSE_PROFILES=backup')
    await store.sh('docker compose up --quiet-pull --detach --wait')
  })

  t.test('a dump that was copied away restores inventory and keys onto a new disk', async (t) => {
    const name = await backUp(store)
    await store.sh('docker compose cp backup:/backup/. ./backups && chmod 600 backups/*')
    await store.sh('docker compose down --volumes')

    const restored = await store.sh(
      `docker compose run --quiet-pull --rm -T backup restore - <backups/${name} && docker compose up --detach --wait`,
    )
    t.match(restored, 'backup.sh: restored -: 2 entries, 1 keys')
    t.equal(await exported(store), STOCK)
    t.match(await store.sh('docker compose exec -T api inventory keys list'), 'billing')

    const cut = await store.run(`head -c 5000 backups/${name} | ${BACKUP} drill -`)
    t.not(cut.code, 0, 'a dump that is cut off is refused')
    t.match(cut.stderr, 'end of file')
  })

  t.test('the inventory moves to a database whose owner is no superuser', async (t) => {
    await store.sh('docker compose run --rm --no-deps -T migrate inventory history on')
    // Another database of the same server, which outlives the change of the compose files.
    const roles = ['owner', 'server', 'operator'].map(
      (role) => `CREATE ROLE new_${role} LOGIN PASSWORD 'new'`,
    )
    for (const statement of [
      ...roles,
      'CREATE DATABASE moved OWNER new_owner',
      'REVOKE ALL ON DATABASE moved FROM PUBLIC',
      'GRANT CONNECT ON DATABASE moved TO new_server',
      'GRANT CONNECT, TEMPORARY ON DATABASE moved TO new_operator',
    ])
      await store.sh(`docker compose exec -T db psql --username=inventory --command="${statement}"`)

    await store.sh('docker compose stop api api-2 && docker compose rm --stop --force backup')
    await store.sh(
      `docker compose exec -T db pg_dump --username=inventory --format=custom inventory |
       docker compose run --rm --no-deps -T --entrypoint pg_restore backup --no-owner --no-privileges \
       --exit-on-error --single-transaction --dbname=postgres://new_owner:new@db/moved`,
    )
    const address = (role: string): string => `postgres://new_${role}:new@db/moved`
    await store.set(
      'COMPOSE_FILE=docker-compose.yml:ops/compose.external-database.yml',
      `DATABASE_URL=${address('server')}`,
      `OPERATOR_DATABASE_URL=${address('operator')}`,
      `OWNER_DATABASE_URL=${address('owner')}`,
      'MIGRATE_OPTIONS=--server-role=new_server --operator-role=new_operator',
    )
    await store.sh('ops/deploy.sh')
    t.equal(await exported(store), STOCK)
    t.match(await store.sh('docker compose exec -T api inventory status'), /^schema\.pending +-$/m)
  })
})
