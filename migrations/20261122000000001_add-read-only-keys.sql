-- Keys that may only read. The version before this one does not know the column: it leaves it at its default, and lets a
-- read-only key change the stock. So make such keys once no process of that version runs.

-- Up Migration
SET LOCAL lock_timeout = '2s';

ALTER TABLE api_keys ADD COLUMN is_read_only boolean NOT NULL DEFAULT false;

-- Down Migration
SET LOCAL lock_timeout = '2s';

ALTER TABLE api_keys DROP COLUMN is_read_only;
