import t from 'tap'
import { startService } from '../support/app.ts'
import { runCommand } from '../support/command.ts'
import { addMany } from '../support/database.ts'
import { json } from '../support/http.ts'

/** What a function of a trigger can do wrong that readiness would report for a statement of the service. */
const faults = {
  'a missing table': 'INSERT INTO audit VALUES (1)',
  'a missing column': 'UPDATE inventory SET price = 1',
  'a missing function': 'PERFORM note(1)',
  'a syntax error': "EXECUTE 'no SQL'",
  'a name of a missing table': "PERFORM 'audit'::regclass",
}

for (const [what, code] of Object.entries(faults)) {
  t.test(`${what} in the operator's trigger is a 500, and no reason to migrate`, async (t) => {
    const { database, send, log } = await startService(t)
    await addMany(database, 2)
    await database.query(`CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN IF NEW.pet_id = 1 THEN ${code}; END IF; RETURN NEW; END $$;
      CREATE TRIGGER audit BEFORE UPDATE ON inventory FOR EACH ROW EXECUTE FUNCTION audit()`)
    const update = (pet: number): Promise<{ status: number; text: string }> =>
      send('PATCH', `/v1/inventory/${pet}`, json({ quantity: 5 }))
    const answers = await Promise.all([update(1), update(2), update(2), update(1)])
    for (const [index, status] of [500, 200, 200, 500].entries()) t.equal(answers[index]?.status, status)
    t.ok(log.some((line) => JSON.stringify(line).includes('PL/pgSQL function audit()')))
    t.equal((await send('GET', '/readyz')).status, 200)

    const env = { DATABASE_URL: database.url }
    const { code: exit, stderr } = await runCommand(t, ['import', '-', '--rows', '1'], {
      env,
      input: 'petId,quantity\n1,1\n',
    })
    t.equal(exit, 1)
    t.match(stderr, /A function or a trigger of the database failed: .* \(PL\/pgSQL function audit\(\)/)
    t.notMatch(stderr, /migrate|at .*\.js/)
  })
}
