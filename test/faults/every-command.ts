import type { OutgoingHttpHeaders } from 'node:http'
import type { Test } from 'tap'
import { inventory, succeed } from '../support/command.ts'
import { type Answer, createSender, json } from '../support/http.ts'
import { onServer } from '../support/on-server.ts'
import { type Outcome, startServer } from '../support/program.ts'

/** An empty database. */
export interface Store {
  /** Its address for the role that may create tables. */
  readonly owner: string
  /** Its address for the role of the server, `service`, which has no privileges. */
  readonly service: string
  /** Changes how the new tables are kept. */
  arrange?(): Promise<unknown>
  /** What `history on` says where triggers are not supported. */
  readonly historyError?: RegExp
}

/** Runs every command and sends every kind of request. Returns what the server has done. */
export async function everyCommand(t: Test, store: Store): Promise<Outcome> {
  const { owner, historyError } = store
  const run = (command: string): Promise<string> => succeed(t, owner, command)
  await run('migrate up')
  await run('migrate down 2 --yes')
  await run('migrate up --server-role service')
  await store.arrange?.()
  const history = await inventory(t, owner, 'history on')
  t.match(history, historyError === undefined ? { code: 0 } : { code: 1, stderr: historyError })

  for (const [csv, options, expected, said] of [
    ['1,1,sold\n2,2,\n3,3,pending\n', '--mode=upsert', 0, /^3 added, 0 changed, 0 unchanged\n$/],
    ['1,5,\n2,2,available\n4,4,\n', '--mode=upsert', 0, /^1 added, 1 changed, 1 unchanged\n$/],
    ['1,6,\n2,2,\n5,5,\n', '--mode=replace', 0, /^1 added, 1 changed, 1 unchanged, 2 removed\n$/],
    ['5,9,\n', '--mode=replace --dry-run', 0, /0 added, 1 changed, 0 unchanged, 2 removed/],
    ['1,1,\n7,7,\n7,7,\n', '', 3, /line 4: petId 7 already occurs in line 3\n/],
  ] as const) {
    const command = `import - --rows ${csv.split('\n').length - 1} --allow-removals ${options}`
    const input = `petId,quantity,status\n${csv}`
    const { code, stdout, stderr } = await inventory(t, owner, command, { input })
    t.equal(code, expected)
    t.match(code === 0 ? stdout : stderr, said)
  }
  t.equal(await run('export'), 'petId,quantity,status\n1,6,sold\n2,2,available\n5,5,available')
  t.match(await run('status'), /^database\.version +\d/m)
  await run('keys create --name old')
  await run('keys revoke old')
  await run('keys create --name ops --expires 90d')
  // Before PostgreSQL 17, such a time cannot be subtracted.
  await onServer(owner, "UPDATE api_keys SET expires_at = 'infinity' WHERE name = 'ops'")
  const key = await run('keys rotate ops')
  t.match(await run('keys list'), /ops.*ending/)

  const server = await startServer(t, { DATABASE_URL: store.service })
  const send = createSender(server.port, { authorization: `Bearer ${key}` })
  const update = (pet: number, quantity: number, condition: OutgoingHttpHeaders = {}): Promise<Answer> =>
    send('PATCH', `/v1/inventory/${pet}`, json({ quantity }, condition))
  t.equal((await send('GET', '/readyz')).text, '{"status":"ready"}')
  const updates = [1, 2, 3, 4, 5, 6, 7, 8].map((quantity) => update(1, quantity))
  for (const { status, text } of await Promise.all([...updates, update(2, 7)])) t.equal(status, 200, text)
  t.equal((await update(1, 20)).status, 200)
  t.equal((await update(6, 1)).status, 404)
  const decided = await Promise.all([
    update(1, 21, { 'if-match': '"20-sold"' }),
    update(2, 1, { 'if-match': '"1-sold"' }),
    update(5, 1, { 'if-none-match': '"5-available"' }),
    update(6, 1, { 'if-match': '"1-sold"' }),
  ])
  t.match(decided, [{ status: 200 }, { status: 412 }, { status: 412 }, { status: 404 }])
  const { text, headers } = await send('GET', '/v1/inventory')
  t.equal(
    text,
    '[{"petId":1,"quantity":21,"status":"sold"},{"petId":2,"quantity":7,"status":"available"},{"petId":5,"quantity":5,"status":"available"}]',
  )
  const unchanged = { 'if-none-match': headers.etag }
  t.equal((await send('GET', '/v1/inventory', { headers: unchanged })).status, 304)
  const { code, stdout: changes } = await inventory(t, owner, 'history --json --since 1h')
  t.equal(code, historyError === undefined ? 0 : 3, 'the exit code says whether the history is on')
  if (historyError === undefined) {
    t.equal(changes.match(/"role":"owner"/g)?.length, 9, 'three imports')
    const byKey = changes.match(/"key":"ops","keyId":"[0-9a-f]{12}","role":"service"/g) ?? []
    t.ok(byKey.length >= 10, 'eleven updates, of which one may have found its quantity')
  } else t.equal(changes, '')
  return server.stop()
}
