import { createServer, type Socket } from 'node:net'
import type { Test } from 'tap'
import { listen } from './ports.ts'

/** A message of the server that asks for authentication (PostgreSQL manual, section 54.7). */
function authentication(code: number, data = ''): Buffer {
  const message = Buffer.from(`R12345678${data}`, 'latin1')
  message.writeInt32BE(message.length - 1, 1)
  message.writeInt32BE(code, 5)
  return message
}

/** Ways to ask for authentication that pg refuses, by the names that PostgreSQL has for them. */
const logins = {
  gss: () => authentication(7),
  oauth: () => authentication(10, 'OAUTHBEARER\0\0'),
  'scram-sha-256': (sent: string) => {
    const [, nonce] = /,r=(.+)$/.exec(sent) ?? []
    if (nonce === undefined) return authentication(10, 'SCRAM-SHA-256\0\0')
    return authentication(11, `r=${nonce}x,s=c2FsdA==,i=600000`)
  },
}

/** Starts a server that asks every client for authentication. Returns its host and port, and how many clients are connected. */
export async function startLogin(t: Test, login: keyof typeof logins) {
  const clients = new Set<Socket>()
  const server = createServer((socket) => {
    clients.add(socket)
    socket.on('error', () => {}).on('close', () => clients.delete(socket))
    socket.on('data', (sent) => socket.write(logins[login](sent.toString('latin1'))))
  })
  return { host: `127.0.0.1:${await listen(t, server)}`, clients }
}
