import t from 'tap'
import { DatabaseUnavailableError } from '../../src/database/errors/errors.ts'
import { explain } from '../../src/process/start-up-errors.ts'

t.test('a network error names the address of PostgreSQL and the variable to check', async (t) => {
  for (const code of ['ECONNREFUSED', 'EHOSTUNREACH', 'ENETUNREACH', 'ETIMEDOUT']) {
    const error = Object.assign(new Error(`connect ${code}`), { code, address: '192.0.2.1', port: 5432 })
    t.equal(
      explain(new DatabaseUnavailableError(error)),
      'PostgreSQL cannot be reached at 192.0.2.1:5432. Check that it is running, and DATABASE_URL.',
    )
  }
})
