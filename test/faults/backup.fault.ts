import t from 'tap'
import { type Deployment, startDeployment } from '../support/deployment.ts'

const BACKUP = 'docker compose run --rm --no-deps -T backup'
const EXTERNAL = 'COMPOSE_FILE=docker-compose.yml:ops/compose.external-database.yml'

/** Writes a backup. Resolves with its name. */
async function backUp({ sh }: Deployment): Promise<string> {
  const [, name = ''] = /wrote (\S+),/.exec(await sh(`${BACKUP} now`)) ?? []
  return name
}

const exported = ({ sh }: Deployment): Promise<string> => sh('docker compose exec -T api inventory export')

t.test('backups of a deployment by compose', async (t) => {
  const store = await startDeployment(t, { settings: ['COMPOSE_PROFILES=backup'] })
  const stock = await exported(store)
  await store.sh('docker compose exec -T api inventory keys create --name billing && cp .env valid.env')
  // The compose files of an external database do not name all volumes, which go with the deployment.
  t.teardown(() => store.sh('cp valid.env .env'))

  t.test('any name in the folder of the backups is the name of a backup', async (t) => {
    await store.sh(
      `docker compose exec -T backup sh -c 'cd /backup && mkdir -m 0 lost+found && cp *.dump inventory-20990101T000000Z.dump'`,
    )
    const name = await backUp(store)
    t.match(await store.sh(`${BACKUP} drill`), `restored ${name}`, 'a time in the future is not the newest')
    await t.rejects(store.sh('docker compose exec -T backup backup.sh health'), { code: 1 })
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
      const stderr = `there is no backup ${missing || 'yet'};`
      await t.rejects(store.sh(`${BACKUP} restore "${missing}"`), { code: 1, stdout: /^$/, stderr })
    }
    const inUse = /the database is in use .*"docker compose stop api api-2"/
    await t.rejects(store.sh(`${BACKUP} restore ${name}`), { code: 1, stderr: inUse })
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
    for (const [settings, message] of [
      [['BACKUP_KEEP_DAYS=abc'], 'BACKUP_KEEP_DAYS must be a whole number from 1 to 9999, not "abc"'],
      [[EXTERNAL, 'DATABASE_URL=postgres://db.example.com/x'], 'DATABASE_URL names another; use pg_dump'],
    ] as const) {
      await store.set(...settings)
      await t.rejects(store.sh('docker compose up --quiet-pull --detach --wait'), { code: 1 })
      t.match(await store.sh('docker compose logs backup-settings'), message)
      await store.sh('cp valid.env .env')
    }
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
    t.equal(await exported(store), stock)
    t.match(await store.sh('docker compose exec -T api inventory keys list'), 'billing')

    const cut = `head -c 5000 backups/${name} | ${BACKUP} drill -`
    await t.rejects(store.sh(cut), { code: 1, stderr: 'end of file' }, 'a dump that is cut off is refused')
  })

  t.test('the inventory moves to a database whose owner is no superuser', async (t) => {
    await store.sh('docker compose run --rm --no-deps -T migrate inventory history on')
    // Another database of the same server, which outlives the change of the compose files.
    for (const statement of [
      "CREATE ROLE new_owner LOGIN PASSWORD 'new'",
      "CREATE ROLE new_server LOGIN PASSWORD 'new'",
      "CREATE ROLE new_operator LOGIN PASSWORD 'new'",
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
      EXTERNAL,
      'COMPOSE_PROFILES=',
      `DATABASE_URL=${address('server')}`,
      `OPERATOR_DATABASE_URL=${address('operator')}`,
      `OWNER_DATABASE_URL=${address('owner')}`,
      'MIGRATE_OPTIONS=--server-role=new_server --operator-role=new_operator',
    )
    await store.sh('ops/deploy.sh')
    t.equal(await exported(store), stock)
    t.match(await store.sh('docker compose exec -T api inventory status'), /^schema\.pending +-$/m)
  })
})
