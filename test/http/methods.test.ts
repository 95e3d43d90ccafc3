import t from 'tap'
import { startApp } from '../support/app.ts'
import { testDatabase } from '../support/database.ts'
import { isError } from '../support/error-shape.ts'

/** The methods of RFC 9110 and 5789 but CONNECT. */
const methods = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE']

const allowed = [
  ['/v1/inventory', 'GET, HEAD'],
  ['/v1/inventory/1', 'PATCH'],
  ['/livez', 'GET, HEAD'],
  ['/readyz', 'GET, HEAD'],
  ['/openapi.json', 'GET, HEAD'],
  ['/docs', 'GET, HEAD'],
  ['/docs/', 'GET, HEAD'],
  ['/docs/reference.js', 'GET, HEAD'],
] as const

t.test(
  'answers the other usual methods on a known path with 405 and the methods that are allowed',
  async (t) => {
    const database = await testDatabase(t)
    const { send } = await startApp(t, database.url)
    for (const [path, allow] of allowed) {
      for (const method of methods.filter((name) => !allow.split(', ').includes(name))) {
        await t.test(`${method} ${path}`, async (t) => {
          const answer = await send(method, path)
          t.equal(answer.headers.allow, allow)
          if (method === 'HEAD') t.equal(answer.status, 405)
          else
            isError(
              t,
              { ...answer, contentType: answer.headers['content-type'], body: answer.text },
              405,
              'method_not_allowed',
            )
        })
      }
    }
  },
)

t.test('a wrong method is refused before the body is read', async (t) => {
  const database = await testDatabase(t)
  const { send } = await startApp(t, database.url)
  for (const method of ['POST', 'PUT', 'DELETE']) {
    const answer = await send(method, '/v1/inventory', {
      headers: { 'content-type': 'text/xml' },
      body: '<a/>',
    })
    t.equal(answer.status, 405, method)
  }
})

t.test('an unusual method gets a 404', async (t) => {
  const database = await testDatabase(t)
  const { send } = await startApp(t, database.url)
  for (const method of ['PROPFIND', 'MKCOL']) {
    const answer = await send(method, '/v1/inventory')
    isError(
      t,
      { ...answer, contentType: answer.headers['content-type'], body: answer.text },
      404,
      'not_found',
    )
    t.equal((await send(method, '/v1/inventory', { headers: { authorization: '' } })).status, 401)
  }
})
