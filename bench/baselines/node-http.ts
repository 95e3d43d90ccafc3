/** The minimum that Node can do: send the bytes of a list from memory, and echo updates; no key, no database, no log. */
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'

const { LIST_FILE = '', PORT } = process.env
const list = readFileSync(LIST_FILE)
const type = 'application/json; charset=utf-8'

const server = createServer((request, response) => {
  if (request.method === 'GET') {
    response.writeHead(200, { 'content-type': type, 'content-length': list.length }).end(list)
    return
  }
  let body = ''
  request.setEncoding('utf8')
  request.on('data', (chunk: string) => (body += chunk))
  request.on('end', () => {
    const petId = request.url?.slice('/v1/inventory/'.length)
    const answer = `{"petId":${petId},"quantity":${JSON.parse(body).quantity},"status":"available"}`
    response.writeHead(200, { 'content-type': type, 'content-length': Buffer.byteLength(answer) }).end(answer)
  })
})
server.listen(Number(PORT), '127.0.0.1')
