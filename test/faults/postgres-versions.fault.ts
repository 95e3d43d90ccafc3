import t, { type Test } from 'tap'
import { callerOf, json } from '../support/http.ts'
import { startVersion } from '../support/installed-postgres.ts'
import { onServer } from '../support/on-server.ts'
import { type Outcome, portOf, startProgram } from '../support/program.ts'
import { testVersions } from './needs.ts'

async function inventory(t: Test, url: string, args: string[], input = ''): Promise<Outcome> {
  const outcome = await (await startProgram(t, 'cli', { args, env: { DATABASE_URL: url }, input })).ended
  t.equal(outcome.code, 0, `inventory ${args.join(' ')}: ${outcome.stderr}`)
  return outcome
}

for (const version of testVersions) {
  t.test(`PostgreSQL ${version}: every command and every request`, async (t) => {
    const superuser = await startVersion(t, version)
    await onServer(superuser, 'CREATE ROLE owner LOGIN')
    await onServer(superuser, 'CREATE ROLE inventory_server LOGIN')
    await onServer(superuser, 'CREATE DATABASE stock OWNER owner')
    const urlOf = (role: string): string => {
      const url = new URL(superuser)
      url.username = role
      url.pathname = '/stock'
      return url.href
    }
    await onServer(urlOf('postgres'), 'GRANT CREATE ON SCHEMA public TO owner')
    const owner = urlOf('owner')
    await inventory(t, owner, ['migrate', 'up'])
    await inventory(t, owner, ['migrate', 'down', '2', '--yes'])
    await inventory(t, owner, ['migrate', 'up', '--server-role', 'inventory_server'])

    await inventory(t, owner, ['history', 'on'])

    const load = async (mode: string, csv: string, ...options: string[]): Promise<string> =>
      (
        await inventory(
          t,
          owner,
          [
            'import',
            '-',
            '--rows',
            String(csv.split('\n').length - 1),
            '--allow-removals',
            '--mode',
            mode,
            ...options,
          ],
          `petId,quantity,status\n${csv}`,
        )
      ).stdout
    t.equal(await load('upsert', '1,1,sold\n2,2,\n3,3,pending\n'), '3 added, 0 changed, 0 unchanged\n')
    t.equal(await load('upsert', '1,5,\n2,2,available\n4,4,\n'), '1 added, 1 changed, 1 unchanged\n')
    t.match(await load('replace', '4,9,\n', '--dry-run'), /0 added, 1 changed, 0 unchanged, 3 removed/)
    t.equal(await load('replace', '1,6,\n2,2,\n5,5,\n'), '1 added, 1 changed, 1 unchanged, 2 removed\n')
    const refused = await startProgram(t, 'cli', {
      args: ['import', '-', '--rows', '3'],
      env: { DATABASE_URL: owner },
      input: 'petId,quantity\n1,1\n7,7\n7,7\n',
    })
    const { code, stderr } = await refused.ended
    t.equal(code, 3)
    t.match(stderr, /line 4: petId 7 already occurs in line 3\n/)
    const csv = 'petId,quantity,status\n1,6,sold\n2,2,available\n5,5,available\n'
    t.equal((await inventory(t, owner, ['export'])).stdout, csv)
    t.match((await inventory(t, owner, ['status'])).stdout, `PostgreSQL ${version}.`)

    await inventory(t, owner, ['keys', 'create', '--name', 'old'])
    await inventory(t, owner, ['keys', 'revoke', 'old'])
    await inventory(t, owner, ['keys', 'create', '--name', 'ops', '--expires', '90d'])
    const key = (await inventory(t, owner, ['keys', 'rotate', 'ops'])).stdout.trim()
    t.match((await inventory(t, owner, ['keys', 'list'])).stdout, /ending/)

    const server = await startProgram(t, 'server', {
      env: { DATABASE_URL: urlOf('inventory_server'), PORT: '0' },
    })
    const send = callerOf(await portOf(server), { authorization: `Bearer ${key}` })
    t.equal((await send('GET', '/readyz')).text, '{"status":"ready"}')
    const quantities = [1, 2, 3, 4, 5, 6, 7, 8]
    const updates = quantities.map((quantity) => send('PATCH', '/v1/inventory/1', json({ quantity })))
    updates.push(send('PATCH', '/v1/inventory/2', json({ quantity: 7 })))
    for (const { status } of await Promise.all(updates)) t.equal(status, 200)
    t.equal((await send('PATCH', '/v1/inventory/1', json({ quantity: 20 }))).status, 200)
    t.equal((await send('PATCH', '/v1/inventory/6', json({ quantity: 1 }))).status, 404)
    const list = await send('GET', '/v1/inventory')
    t.equal(
      list.text,
      '[{"petId":1,"quantity":20,"status":"sold"},{"petId":2,"quantity":7,"status":"available"},{"petId":5,"quantity":5,"status":"available"}]',
    )
    const history = (await inventory(t, owner, ['history', '--json', '--since', '1h'])).stdout
    t.equal(history.match(/"role":"owner"/g)?.length, 9, 'three imports')
    const byKey = history.match(/"key":"ops","keyId":"[0-9a-f]{12}","role":"inventory_server"/g) ?? []
    t.ok(byKey.length >= 9, 'ten updates, of which one may have found its quantity')
    const headers = { 'if-none-match': list.headers.etag }
    t.equal((await send('GET', '/v1/inventory', { headers })).status, 304)
    await server.output(/lists are reused until there is a commit/)
    server.process.kill('SIGTERM')
    const { code: ended, stdout } = await server.ended
    t.equal(ended, 0)
    t.notMatch(stdout, /"level":[4-6]0/)
    await inventory(t, owner, ['migrate', 'down', '2', '--yes'])
  })
}
