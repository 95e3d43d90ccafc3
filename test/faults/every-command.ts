import type { Test } from 'tap'
import { runCommand, succeed } from '../support/command.ts'
import { type Answer, json } from '../support/http.ts'
import { onServer } from '../support/on-server.ts'
import type { Outcome } from '../support/program.ts'
import { startServer } from '../support/running-server.ts'

/** An empty database. */
export interface Store {
  /** Its address for the role that may create tables. */
  readonly owner: string
  /** Its address for the role of the server, which has no privileges. */
  readonly service: string
  /** The name of that role. */
  readonly role: string
  /** Changes how the new tables are kept. */
  arrange?(): Promise<unknown>
  /** What `history on` says where triggers are not supported. */
  readonly historyError?: RegExp
}

const LIST =
  '[{"petId":1,"quantity":21,"status":"sold"},{"petId":2,"quantity":7,"status":"available"},{"petId":5,"quantity":5,"status":"available"}]'

/** Runs every command and sends every kind of request. Returns what the server has done. */
export async function everyCommand(t: Test, store: Store): Promise<Outcome> {
  const { owner, role, historyError } = store
  const run = (...args: string[]): Promise<string> => succeed(t, owner, ...args)
  await run('migrate', 'up')
  await run('migrate', 'down', '2', '--yes')
  await run('migrate', 'up', '--server-role', role)
  await store.arrange?.()
  const history = await runCommand(t, ['history', 'on'], { env: { DATABASE_URL: owner } })
  t.match(history, historyError === undefined ? { code: 0 } : { code: 1, stderr: historyError })

  const load = (csv: string, ...options: string[]): Promise<Outcome> => {
    const rows = String(csv.split('\n').length - 1)
    const args = ['import', '-', '--rows', rows, '--allow-removals', ...options]
    return runCommand(t, args, { env: { DATABASE_URL: owner }, input: `petId,quantity,status\n${csv}` })
  }
  for (const [csv, mode, said] of [
    ['1,1,sold\n2,2,\n3,3,pending\n', '--mode=upsert', /^3 added, 0 changed, 0 unchanged\n$/],
    ['1,5,\n2,2,available\n4,4,\n', '--mode=upsert', /^1 added, 1 changed, 1 unchanged\n$/],
    ['1,6,\n2,2,\n5,5,\n', '--mode=replace', /^1 added, 1 changed, 1 unchanged, 2 removed\n$/],
  ] as const)
    t.match(await load(csv, mode), { code: 0, stdout: said })
  t.match(await load('5,9,\n', '--mode=replace', '--dry-run'), {
    code: 0,
    stdout: /0 added, 1 changed, 0 unchanged, 2 removed/,
  })
  t.match(await load('1,1,\n7,7,\n7,7,\n'), {
    code: 3,
    stderr: /line 4: petId 7 already occurs in line 3\n/,
  })
  t.equal(await run('export'), 'petId,quantity,status\n1,6,sold\n2,2,available\n5,5,available')
  t.match(await run('status'), /^database\.version +\d/m)
  await run('keys', 'create', '--name', 'old')
  await run('keys', 'revoke', 'old')
  await run('keys', 'create', '--name', 'ops', '--expires', '90d')
  // Before PostgreSQL 17, such a time cannot be subtracted.
  await onServer(owner, "UPDATE api_keys SET expires_at = 'infinity' WHERE name = 'ops'")
  const key = await run('keys', 'rotate', 'ops')
  t.match(await run('keys', 'list'), /ops.*ending/)

  const server = await startServer(t, { DATABASE_URL: store.service })
  const send = (
    method: string,
    path: string,
    body?: object,
    name = 'accept',
    value = '*/*',
  ): Promise<Answer> => {
    const message = body === undefined ? {} : json(body)
    const headers = { ...message.headers, authorization: `Bearer ${key}`, [name]: value }
    return server.send(method, path, { ...message, headers })
  }
  t.equal((await send('GET', '/readyz')).text, '{"status":"ready"}')
  const updates = [1, 2, 3, 4, 5, 6, 7, 8].map((quantity) => send('PATCH', '/v1/inventory/1', { quantity }))
  updates.push(send('PATCH', '/v1/inventory/2', { quantity: 7 }))
  for (const answer of await Promise.all(updates)) t.equal(answer.status, 200, answer.text)
  t.equal((await send('PATCH', '/v1/inventory/1', { quantity: 20 })).status, 200)
  t.equal((await send('PATCH', '/v1/inventory/6', { quantity: 1 })).status, 404)
  const decided = await Promise.all([
    send('PATCH', '/v1/inventory/1', { quantity: 21 }, 'if-match', '"20-sold"'),
    send('PATCH', '/v1/inventory/2', { quantity: 1 }, 'if-match', '"1-sold"'),
    send('PATCH', '/v1/inventory/5', { quantity: 1 }, 'if-none-match', '"5-available"'),
    send('PATCH', '/v1/inventory/6', { quantity: 1 }, 'if-match', '"1-sold"'),
  ])
  t.strictSame(
    decided.map(({ status }) => status),
    [200, 412, 412, 404],
  )
  const list = await send('GET', '/v1/inventory')
  t.equal(list.text, LIST)
  t.equal((await send('GET', '/v1/inventory', undefined, 'if-none-match', list.headers.etag)).status, 304)
  const changes = await run('history', '--json', '--since', '1h')
  const byKey = changes.match(new RegExp(`"key":"ops","keyId":"[0-9a-f]{12}","role":"${role}"`, 'g')) ?? []
  if (historyError === undefined) {
    t.equal(changes.match(/"role":"owner"/g)?.length, 9, 'three imports')
    t.ok(byKey.length >= 10, 'eleven updates, of which one may have found its quantity')
  } else t.equal(changes, '')
  return server.stop()
}
