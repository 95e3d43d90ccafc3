import type pg from 'pg'
import { operatorClient } from './operator-client.ts'

declare module 'pg' {
  interface Client {
    /** Identify the session in a CancelRequest; null until the server or a pooler has accepted the connection. */
    readonly processID: number | null
    readonly secretKey: number | null
    readonly sslNegotiation: string
  }
  interface Connection {
    connect(port: number | string, host?: string): void
    requestSsl(): void
    cancel(processID: number, secretKey: number): void
  }
}

/** How long the server may take to end the session after its statement was canceled. */
const CANCEL_TIMEOUT_MS = 5000

/**
 * Ends a session when the signal is aborted: cancels the running statement on the server, because one that takes minutes would
 * hold its locks until it ends, and closes the connection if the server does not end the statement in time. Until the session is
 * established, closes the connection at once. Whatever waits for the connection then fails.
 *
 * @returns a function after which the signal has no more effect
 */
export function interruptOnAbort(client: pg.Client, url: string, signal: AbortSignal): () => void {
  let timeout: NodeJS.Timeout | undefined
  let stopCanceling = (): void => {}
  const interrupt = (): void => {
    const { processID, secretKey } = client
    const close = (): unknown => client.connection.stream.destroy()
    if (processID === null || secretKey === null) return void close()
    timeout = setTimeout(close, CANCEL_TIMEOUT_MS)
    stopCanceling = requestCancel(url, processID, secretKey)
  }
  signal.addEventListener('abort', interrupt, { once: true })
  return () => {
    signal.removeEventListener('abort', interrupt)
    clearTimeout(timeout)
    stopCanceling()
  }
}

/**
 * Sends a CancelRequest (PostgreSQL manual, section 54.2.8), encrypted if the session is. Unlike `pg_cancel_backend`, it needs no
 * further session, and never reaches the statement of another client: a pooler, which knows the session by this key, assigns
 * its server connections to other clients.
 *
 * @returns a function that closes the connection
 */
function requestCancel(url: string, processID: number, secretKey: number): () => void {
  const { connection, host, port, ssl, sslNegotiation } = operatorClient(url)
  const send = (): void => connection.cancel(processID, secretKey)
  connection.on('connect', () => {
    if (!ssl) send()
    else if (sslNegotiation !== 'direct') connection.requestSsl()
  })
  connection.on('sslconnect', send)
  // If the server cannot be reached, the session is closed without it.
  connection.on('error', () => {})
  if (host.startsWith('/')) connection.connect(`${host}/.s.PGSQL.${port}`)
  else connection.connect(port, host)
  return () => connection.stream.destroy()
}
