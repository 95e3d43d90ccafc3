import pg from 'pg'
import t from 'tap'
import { DatabaseUnavailableError, ServerChangedError } from '../../../src/database/errors/errors.ts'
import {
  isFatal,
  isRefusal,
  isUnavailable,
  lossOf,
  mayConcernOneRow,
  wasRefused,
} from '../../../src/database/errors/failures.ts'

function refusal(code: string): pg.DatabaseError {
  const error = new pg.DatabaseError('refused', 0, 'error')
  error.code = code
  return error
}

t.test('tells what may succeed later from what is wrong with the statement', async (t) => {
  const later = [
    '08006',
    '28P01',
    '53300',
    '57014',
    '57P01',
    '58030',
    '25006',
    '25P03',
    '25P04',
    '3D000',
    '40001',
    '40P01',
    '42P01',
    '42703',
    '42501',
    '55P03',
    '0A000',
    '42601',
    '42704',
    '42883',
  ]
  const never = ['22003', '23514', '22P02', 'P0001', 'XX000']
  for (const code of later) t.ok(isUnavailable(refusal(code)), code)
  for (const code of never) t.notOk(isUnavailable(refusal(code)), code)
  t.ok(isUnavailable(new Error('Connection terminated unexpectedly')))
  t.notOk(isUnavailable(new TypeError('a bug')))
})

t.test('tells a connection that was lost from one that cannot be opened or does not respond', async (t) => {
  const reset = Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' })
  const lost = [
    reset,
    new Error('Connection terminated unexpectedly'),
    new ServerChangedError(),
    refusal('57P01'),
    refusal('08P01'),
  ]
  for (const error of lost) {
    t.equal(lossOf(error), error.message)
    t.equal(lossOf(new DatabaseUnavailableError(error)), error.message)
  }
  const others = [
    Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' }),
    new Error('Connection terminated due to connection timeout'),
    new Error('Query read timeout'),
    new TypeError('a bug'),
    ...['08006', '28P01', '53300', '55P03', '57014', '57P03'].map(refusal),
  ]
  for (const error of others) t.equal(lossOf(error), undefined, error.message)
})

t.test('tells a lost connection from a refused statement', async (t) => {
  for (const code of ['08007', '08P01', '25P03', '25P04', '53300', '57P01', '57P02', 'XX000']) {
    t.ok(isFatal(refusal(code)), code)
    t.notOk(wasRefused(refusal(code)), code)
  }
  for (const code of ['22003', '23514', '40P01', '42P01', '55P03']) {
    t.notOk(isFatal(refusal(code)), code)
    t.ok(wasRefused(refusal(code)))
    t.ok(wasRefused(new DatabaseUnavailableError(refusal(code))))
  }
  t.ok(isFatal(new Error('Query read timeout')))
  t.notOk(isFatal(refusal('57014')))
  for (const code of ['40003', '57014']) t.notOk(wasRefused(refusal(code)), 'the outcome is unknown')
  t.notOk(wasRefused(new Error('Query read timeout')), 'it may have been committed')
  t.notOk(wasRefused(new DatabaseUnavailableError(refusal('57P01'))))
})

t.test('tells a server behind the server that cannot be reached from a lost connection', async (t) => {
  const message = 'connection to the remote node 127.0.0.1:5433 failed with the following error: '
  const remote = (code: string, detail: string, severity = 'ERROR'): pg.DatabaseError => {
    const error = new pg.DatabaseError(message + detail, 0, 'error')
    return Object.assign(error, { code, severity })
  }
  for (const code of ['08000', '08001', '08003', '08004', '08006']) {
    const error = remote(code, 'Connection refused')
    t.ok(isUnavailable(error), code)
    t.ok(wasRefused(error), code)
    t.ok(mayConcernOneRow(new DatabaseUnavailableError(error)), code)
    t.notOk(isFatal(error), 'the connection to this server is as good as before')
  }
  for (const unknown of [
    remote('08006', 'server closed the connection unexpectedly'),
    remote('08006', 'SSL SYSCALL error: EOF detected'),
    remote('08006', 'Connection refused', 'FATAL'),
    remote('08P01', 'server conn crashed?'),
  ]) {
    t.notOk(wasRefused(unknown), unknown.message)
    t.ok(isFatal(unknown), unknown.message)
  }
  t.notOk(wasRefused(new DatabaseUnavailableError(new Error('Connection terminated unexpectedly'))))
})

t.test('tells a wrong login from a database that is away', async (t) => {
  for (const code of ['28P01', '28000', '3D000']) t.ok(isRefusal(refusal(code)), code)
  for (const message of [
    'unsupported startup parameter: options',
    'unsupported startup parameter in options: lock_timeout',
    'Feature not supported: RDS Proxy currently doesn’t support command-line options.',
  ])
    t.ok(isRefusal(new pg.DatabaseError(message, 0, 'error')), message)
  for (const code of ['SELF_SIGNED_CERT_IN_CHAIN', 'CERT_HAS_EXPIRED', 'ERR_TLS_CERT_ALTNAME_INVALID'])
    t.ok(isRefusal(Object.assign(new Error('untrusted'), { code })), code)
  t.ok(isRefusal(new Error('The server does not support SSL connections')))
  t.notOk(isRefusal(Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' })))
  t.notOk(isRefusal(refusal('57P03')))
  t.notOk(isRefusal(new Error('connect ECONNREFUSED')))
})
