-- The history after "ALTER SCHEMA … RENAME", without transactions for nothing, and without forged names. The function replaces
-- that of version 2.0.0, which all triggers use, so a history that is on stays on; its triggers, tables and setting are the
-- same for version 2.0.0, whose servers and commands work with it.

-- Up Migration
SET LOCAL lock_timeout = '2s';

-- The triggers are on the table of the history's schema, which may have got another name. Only the owner can create one that
-- calls the function, which runs as the owner, so that writers need no privilege. With `pg_temp` last, a temporary table of the
-- writer does not take the place of the history.
--
-- A statement that changes no row gets neither ids nor a transaction id, which would make every list be compared again.
--
-- The setting maps each petId of a statement to the name and the id of the API key and the id of the request. Any role can
-- set it, so it counts only if all of it is in the alphabets of these: the role is the only proof. One regular expression for all
-- rows, without bounds such as {1,64}, since each would take PostgreSQL longer than the rest.
CREATE OR REPLACE FUNCTION record_inventory_history() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  statement bigint;
  transaction bigint;
  now timestamptz;
  role text := session_user;
  setting text;
  callers jsonb;
BEGIN
  CASE TG_OP
    WHEN 'DELETE' THEN PERFORM FROM former LIMIT 1;
    WHEN 'TRUNCATE' THEN PERFORM 1;
    ELSE PERFORM FROM latest LIMIT 1;
  END CASE;
  IF NOT FOUND THEN RETURN NULL; END IF;
  PERFORM set_config('search_path', quote_ident(TG_TABLE_SCHEMA) || ', pg_temp', true);
  statement := nextval('inventory_history_statement_id');
  transaction := pg_current_xact_id()::text::bigint;
  now := clock_timestamp();
  CASE TG_OP
    WHEN 'UPDATE' THEN
      setting := current_setting('inventory.callers', true);
      IF setting ~ '^{("-?[0-9]+": ?[[]("[A-Za-z0-9_-]+"|null), ?("[0-9a-f]+"|null), ?("[A-Za-z0-9._-]+"|null)],? ?)*}$' THEN
        callers := setting;
      END IF;
      -- OFFSET keeps the look-up of a caller from being made for each of its names.
      INSERT INTO inventory_history
      SELECT statement, transaction, now, pet_id, former.quantity, latest.quantity, former.status, latest.status,
        caller ->> 0, caller ->> 1, role, caller ->> 2
      FROM former FULL JOIN latest USING (pet_id), LATERAL (SELECT callers -> pet_id::text AS caller OFFSET 0) AS named
      WHERE (former.quantity, former.status) IS DISTINCT FROM (latest.quantity, latest.status);
    WHEN 'INSERT' THEN
      INSERT INTO inventory_history
      SELECT statement, transaction, now, pet_id, NULL, quantity, NULL, status, NULL, NULL, role FROM latest;
    WHEN 'DELETE' THEN
      INSERT INTO inventory_history
      SELECT statement, transaction, now, pet_id, quantity, NULL, status, NULL, NULL, NULL, role FROM former;
    WHEN 'TRUNCATE' THEN
      INSERT INTO inventory_history (statement_id, transaction_id, changed_at, role)
      VALUES (statement, transaction, now, role);
  END CASE;
  RETURN NULL;
END $$;

-- Down Migration
SET LOCAL lock_timeout = '2s';

CREATE OR REPLACE FUNCTION record_inventory_history() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
#variable_conflict use_variable
DECLARE
  statement bigint := nextval('inventory_history_statement_id');
  transaction bigint := pg_current_xact_id()::text::bigint;
  now timestamptz := clock_timestamp();
  callers jsonb := nullif(current_setting('inventory.callers', true), '');
BEGIN
  CASE TG_OP
    WHEN 'UPDATE' THEN
      INSERT INTO inventory_history
      SELECT statement, transaction, now, pet_id, former.quantity, latest.quantity, former.status, latest.status,
        callers -> pet_id::text ->> 0, callers -> pet_id::text ->> 1, session_user, callers -> pet_id::text ->> 2
      FROM former FULL JOIN latest USING (pet_id)
      WHERE (former.quantity, former.status) IS DISTINCT FROM (latest.quantity, latest.status);
    WHEN 'INSERT' THEN
      INSERT INTO inventory_history
      SELECT statement, transaction, now, pet_id, NULL, quantity, NULL, status, NULL, NULL, session_user FROM latest;
    WHEN 'DELETE' THEN
      INSERT INTO inventory_history
      SELECT statement, transaction, now, pet_id, quantity, NULL, status, NULL, NULL, NULL, session_user FROM former;
    WHEN 'TRUNCATE' THEN
      INSERT INTO inventory_history (statement_id, transaction_id, changed_at, role)
      VALUES (statement, transaction, now, session_user);
  END CASE;
  RETURN NULL;
END $$;

DO $$ BEGIN
  EXECUTE format('ALTER FUNCTION record_inventory_history() SET search_path = %I, pg_temp', current_schema());
END $$;
