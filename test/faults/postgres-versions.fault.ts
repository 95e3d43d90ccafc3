import t from 'tap'
import { succeed } from '../support/command.ts'
import { onServer } from '../support/on-server.ts'
import { findPrograms, startInstalled } from '../support/own-server.ts'
import { replaceDatabase } from '../support/server.ts'
import { everyCommand } from './every-command.ts'

for (const version of [14, 15, 16, 17, 18]) {
  t.test(`PostgreSQL ${version}: every command and every request`, async (t) => {
    const { query, superuserUrl } = await startInstalled(t, findPrograms(version), { fsync: 'off' })
    await query('CREATE ROLE owner LOGIN')
    await query('CREATE ROLE service LOGIN')
    await query('CREATE DATABASE stock OWNER owner')
    const stock = replaceDatabase(superuserUrl, 'stock')
    await onServer(stock, 'GRANT CREATE ON SCHEMA public TO owner')
    const owner = stock.replace('postgres@', 'owner@')
    const service = stock.replace('postgres@', 'service@')
    const { code, stdout } = await everyCommand(t, { owner, service })
    t.equal(code, 0)
    t.notMatch(stdout, /"level":[4-6]0/)
    t.match(await succeed(t, owner, 'status'), new RegExp(`^database\\.version +${version}\\.`, 'm'))
    await succeed(t, owner, 'migrate down 2 --yes')
  })
}
