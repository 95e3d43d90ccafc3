-- The history of the stock: a row for each change of an entry, in the transaction that made the change. It stays empty until
-- "inventory history on" creates the triggers, since even a disabled trigger with transition tables costs each statement time,
-- and Citus distributes no table that has triggers. Older versions do not know the history; it records their updates with
-- their database role alone.

-- Up Migration
SET LOCAL lock_timeout = '2s';

-- A statement takes its id after it has locked its rows, so the ids of a pet are in the order of its changes. One id, and one
-- time, for all rows of a statement make large imports cheaper. `transaction_id` lets a reader find the changes that were
-- committed after an earlier snapshot, whatever their ids; it is a bigint, because a BRIN index does not support xid8.
CREATE TABLE inventory_history (
  statement_id bigint NOT NULL,
  transaction_id bigint NOT NULL,
  changed_at timestamptz NOT NULL,
  pet_id bigint,
  old_quantity integer,
  new_quantity integer,
  old_status text,
  new_status text,
  key_name text,
  key_id text,
  role text NOT NULL,
  request_id text
);

CREATE SEQUENCE inventory_history_statement_id OWNED BY inventory_history.statement_id;

CREATE INDEX inventory_history_order ON inventory_history (statement_id);
CREATE INDEX inventory_history_pet ON inventory_history (pet_id, statement_id);
CREATE INDEX inventory_history_time ON inventory_history USING brin (transaction_id, changed_at) WITH (autosummarize = on);

-- Without a primary key, a publication of all tables would refuse to delete rows.
ALTER TABLE inventory_history REPLICA IDENTITY FULL;

-- As its owner, so that writers need no privilege on the table. The setting maps each petId of a statement to the name and the
-- id of the API key and the id of the request. TRUNCATE is one row without a petId.
CREATE FUNCTION record_inventory_history() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
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

-- Otherwise, a temporary table of the writer could take the place of the history, or a trigger on another table fill it.
DO $$ BEGIN
  EXECUTE format('ALTER FUNCTION record_inventory_history() SET search_path = %I, pg_temp', current_schema());
END $$;
REVOKE EXECUTE ON FUNCTION record_inventory_history() FROM PUBLIC;

-- Down Migration
SET LOCAL lock_timeout = '2s';

DROP FUNCTION record_inventory_history() CASCADE;
DROP TABLE inventory_history;
