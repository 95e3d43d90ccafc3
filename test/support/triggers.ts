import type { TestDatabase } from './database.ts'

/** What `trigger` creates by default, and a trigger that runs during the commit. */
const BEFORE_UPDATE = 'TRIGGER act BEFORE UPDATE ON inventory FOR EACH ROW'
export const AT_COMMIT = 'CONSTRAINT TRIGGER act AFTER UPDATE ON inventory INITIALLY DEFERRED FOR EACH ROW'

/** Returns the SQL that creates a trigger with a function of these statements in PL/pgSQL, which ends with RETURN NEW. */
export function trigger(statements: string, definition = BEFORE_UPDATE): string {
  return `CREATE FUNCTION act() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ${statements}; RETURN NEW; END $$;
    CREATE ${definition} EXECUTE FUNCTION act()`
}

/** Adds a trigger that counts the updates of the table, and executes more statements. Returns what reads the count. */
export async function countStatements({ query }: TestDatabase, more = 'NULL') {
  const count = trigger(`PERFORM nextval('statements'); ${more}`, 'TRIGGER act BEFORE UPDATE ON inventory')
  await query(`CREATE SEQUENCE statements MINVALUE 0; SELECT nextval('statements'); ${count}`)
  return async () => Number((await query('SELECT last_value FROM statements'))[0]?.['last_value'])
}
