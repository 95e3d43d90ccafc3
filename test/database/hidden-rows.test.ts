import t from 'tap'
import { startApp } from '../support/app.ts'
import { inventory, succeed } from '../support/command.ts'
import { addKey, testDatabase, testRole } from '../support/database.ts'

t.test('rows that row security may hide are a reason not to be ready, never an empty list', async (t) => {
  const role = await testRole(t)
  const database = await testDatabase(t, { entries: ['1,9,available'] })
  const key = await addKey(database, 'stored')
  const url = role.toUrl(database.url)
  await succeed(t, database.url, `migrate up --server-role ${role.name}`)
  await database.query(`GRANT ALL ON inventory, api_keys TO ${role.name}`)
  const { send } = await startApp(t, url)
  const readiness = async (): Promise<string> => (await send('GET', '/readyz')).text
  t.equal(await readiness(), '{"status":"ready"}')

  for (const table of ['inventory', 'api_keys']) {
    await database.query(`ALTER TABLE ${table} ENABLE ROW LEVEL SECURITY`)
    const { send: started, update } = await startApp(t, url)
    const reason = `Row security would hide rows: query would be affected by row-level security policy for table "${table}"`
    t.match(JSON.parse((await started('GET', '/readyz')).text), { message: reason }, table)
    const authorization = `Bearer ${key}`
    const requests = [
      await started('GET', '/v1/inventory', { headers: { authorization } }),
      await started('GET', '/v1/inventory'),
      await update(1, 3),
    ]
    if (table === 'api_keys') t.equal(requests[0]?.status, 503, 'a stored key is not called invalid')
    else for (const answer of requests) t.equal(answer.status, 503, answer.text)

    const stderr = /: Row security would hide rows from this role: .* Use a role that sees all/
    const input = 'petId,quantity\n1,2\n'
    const commands =
      table === 'inventory' ? ['export', 'import - --rows 1'] : ['keys list', 'keys revoke stored']
    for (const command of ['status', ...commands])
      t.match(await inventory(t, url, command, { input }), { code: 1, stdout: '', stderr }, command)
    await database.query(`ALTER TABLE ${table} DISABLE ROW LEVEL SECURITY`)
  }
})
