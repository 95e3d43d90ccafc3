-- The history with qualified names: with a column "caller" in the inventory, every update failed. Only the function changes, which the
-- triggers of all versions use.

-- Up Migration
SET LOCAL lock_timeout = '2s';

-- Whatever columns an operator adds to the tables: a variable comes before a column of the same name, and every column has its table.
-- What else the function does is explained where it was made.
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
      INSERT INTO inventory_history (statement_id, transaction_id, changed_at, role, pet_id,
        old_quantity, new_quantity, old_status, new_status, key_name, key_id, request_id)
      SELECT statement, transaction, now, role, coalesce(latest.pet_id, former.pet_id),
        former.quantity, latest.quantity, former.status, latest.status, named.caller ->> 0, named.caller ->> 1, named.caller ->> 2
      FROM former FULL JOIN latest ON latest.pet_id = former.pet_id,
        LATERAL (SELECT callers -> coalesce(latest.pet_id, former.pet_id)::text AS caller OFFSET 0) AS named
      WHERE (former.quantity, former.status) IS DISTINCT FROM (latest.quantity, latest.status);
    WHEN 'INSERT' THEN
      INSERT INTO inventory_history (statement_id, transaction_id, changed_at, role, pet_id, new_quantity, new_status)
      SELECT statement, transaction, now, role, latest.pet_id, latest.quantity, latest.status FROM latest;
    WHEN 'DELETE' THEN
      INSERT INTO inventory_history (statement_id, transaction_id, changed_at, role, pet_id, old_quantity, old_status)
      SELECT statement, transaction, now, role, former.pet_id, former.quantity, former.status FROM former;
    WHEN 'TRUNCATE' THEN
      INSERT INTO inventory_history (statement_id, transaction_id, changed_at, role)
      VALUES (statement, transaction, now, role);
  END CASE;
  RETURN NULL;
END $$;

-- Down Migration
SET LOCAL lock_timeout = '2s';

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
