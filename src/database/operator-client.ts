import pg from 'pg'

const CONNECT_TIMEOUT_MS = 10_000

/** Creates a client for a command of the operators. It is not connected yet. `config` takes precedence over the defaults. */
export function operatorClient(url: string, config: pg.ClientConfig = {}): pg.Client {
  const client = new pg.Client({
    connectionString: url,
    application_name: 'petstore-inventory cli',
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    keepAlive: true,
    ...config,
  })
  // If the connection breaks between two statements, the next one fails. Without a listener, the process would exit.
  client.on('error', () => {})
  return client
}
