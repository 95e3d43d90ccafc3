-- Why this change is needed, and what must hold while the version before it still runs on the new schema.
--
-- It runs outside a transaction, one statement after the other; each ends at a line that ends in a semicolon. Where one
-- fails, those before it stay, and the next run starts from the first again: so each part begins by dropping what a
-- failed run may have left. The limit is for the wait for transactions that are open; nobody waits behind it.

-- Up Migration (no transaction)
SET lock_timeout = '60s';
DROP INDEX CONCURRENTLY IF EXISTS inventory_example_idx;
CREATE INDEX CONCURRENTLY inventory_example_idx ON inventory (status);

-- Down Migration (no transaction)
SET lock_timeout = '60s';
DROP INDEX CONCURRENTLY IF EXISTS inventory_example_idx;
