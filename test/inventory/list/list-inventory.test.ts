import zlib from 'node:zlib'
import t from 'tap'
import { startApp, startService } from '../../support/app.ts'
import { isError } from '../../support/http.ts'

const service = await startService(t, ['1,1,available'])
const { send } = service

t.test('a query and a body of a list are ignored', async (t) => {
  const message = { headers: { 'content-type': 'text/xml' }, body: '<a/>' }
  t.equal((await send('GET', '/v1/inventory?limit=1&petId=x', message)).status, 200)
})

t.test('the list has no part of a transaction', async (t) => {
  const { database, send } = await startService(t, 500)
  let isWriting = true
  const writer = database
    .query('DO $$ BEGIN FOR n IN 1..40 LOOP UPDATE inventory SET quantity = n; COMMIT; END LOOP; END $$')
    .finally(() => (isWriting = false))
  while (isWriting) {
    const { text } = await send('GET', '/v1/inventory')
    const quantities = new Set(Array.from(text.matchAll(/"quantity":(\d+)/g), ([, quantity]) => quantity))
    t.equal(quantities.size, 1, 'all entries of one list have the same quantity')
  }
  await writer
})

t.test('a caller that has the list gets a 304 without a body', async (t) => {
  const { headers } = await send('GET', '/v1/inventory')
  const etag = String(headers.etag)
  t.match(etag, /^"[A-Za-z0-9_-]{22}"$/, 'a strong entity tag')
  const common = { 'cache-control': 'private, no-cache', vary: 'Accept-Encoding' }
  t.match(headers, common)
  const compressed = [etag.replace(/"$/, '-br"'), `W/${etag.replace(/"$/, '-gzip"')}`]
  const matching = [etag, `W/${etag}`, `"x", ${etag}`, `${etag},"y,z"`, '*', ' * ', ...compressed]
  const bare = etag.slice(1, -1)
  const broken = [bare, `w/${etag}`, `${etag}, x`, `x, ${etag}`, `${etag} ${etag}`, `*, ${etag}`, '"', 'W/']
  // The length in a 304 would be the size of the list.
  const unchanged = { status: 304, text: '', headers: { ...common, etag, 'content-length': undefined } }
  for (const condition of [...matching, '"x"', '', ...broken]) {
    const expected = matching.includes(condition) ? unchanged : { status: 200, headers: { etag } }
    for (const method of ['GET', 'HEAD']) {
      const answer = await send(method, '/v1/inventory', { headers: { 'if-none-match': condition } })
      t.match(answer, expected, `${method} ${condition}`)
    }
  }
})

t.test('the list is sent only if it matches If-Match', async (t) => {
  const etag = String((await send('GET', '/v1/inventory')).headers.etag)
  for (const [match, noneMatch, status] of [
    ['*', undefined, 200],
    [etag, undefined, 200],
    [`W/${etag}`, undefined, 412],
    ['"x"', undefined, 412],
    [etag, etag, 304],
    ['"x"', etag, 412],
    [etag.slice(1, -1), undefined, 400],
  ] as const) {
    for (const method of ['GET', 'HEAD']) {
      const headers = { 'if-match': match, ...(noneMatch && { 'if-none-match': noneMatch }) }
      const answer = await send(method, '/v1/inventory', { headers })
      t.equal(answer.status, status, `${method} ${match}`)
      t.equal(answer.headers.etag, status === 400 ? undefined : etag, `${method} ${match}`)
      const code = status === 412 ? 'precondition_failed' : 'invalid_request'
      if (status >= 400 && method === 'GET') isError(t, answer, status, code)
    }
  }
})

t.test('each list has its own tag, which is the same in every process', async (t) => {
  const apps = [service, await startApp(t, service.database.url)]
  const tags = new Map<string, Set<unknown>>()
  for (const quantity of [5, 6, 5, 7, 6]) {
    for (const { send, update } of apps) {
      await update(1, quantity)
      const { text, headers } = await send('GET', '/v1/inventory')
      tags.set(text, (tags.get(text) ?? new Set()).add(headers.etag))
    }
  }
  t.equal(tags.size, 3)
  t.ok([...tags.values()].every((set) => set.size === 1))
  t.equal(new Set([...tags.values()].flatMap((set) => [...set])).size, 3)
})

t.test('compresses the list as the caller accepts it, each coding with a tag of its own', async (t) => {
  const { send } = await startService(t, 3000)
  const plain = await send('GET', '/v1/inventory')
  t.equal(plain.headers['content-encoding'], undefined)
  const expectations = [
    ['gzip', 'gzip'],
    ['br;q=0.5, gzip;q=0.4, *;q=0.1', 'gzip'],
    ['gzip;q=0.5, identity;q=0.1', 'gzip'],
    ['identity, gzip', undefined],
    ['*', 'gzip'],
    ['*;q=0.5, identity', undefined],
    ['gzip;q=0', undefined],
    ['', undefined],
    ['identity;q=0, deflate', undefined],
  ] as const
  const tags = new Map<string | undefined, string | undefined>()
  for (const [accepted, coding] of expectations) {
    const answer = await send('GET', '/v1/inventory', { headers: { 'accept-encoding': accepted } })
    const length = String(answer.body.length)
    const expected = { 'content-encoding': coding, vary: 'Accept-Encoding', 'content-length': length }
    t.match(answer.headers, expected, accepted)
    t.equal((coding === 'gzip' ? zlib.gunzipSync(answer.body) : answer.body).toString(), plain.text, accepted)
    tags.set(coding, answer.headers.etag)
    const again = await send('GET', '/v1/inventory', {
      headers: { 'accept-encoding': accepted, 'if-none-match': answer.headers.etag },
    })
    t.equal(again.status, 304, accepted)
  }
  t.equal(new Set(tags.values()).size, tags.size)
})
