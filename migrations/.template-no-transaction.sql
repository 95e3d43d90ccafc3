-- Why this change is needed, and what must hold while the version before it still runs on the new schema.
--
-- It runs outside a transaction, statement by statement; each ends at a line that ends in a semicolon. If one fails, the
-- changes before it remain, and the next run starts from the beginning, so each part first drops what a failed run may
-- have left. The lock_timeout limits the wait for open transactions; no other session waits meanwhile.

-- Up Migration (no transaction)
SET lock_timeout = '60s';
DROP INDEX CONCURRENTLY IF EXISTS inventory_example_idx;
CREATE INDEX CONCURRENTLY inventory_example_idx ON inventory (status);

-- Down Migration (no transaction)
SET lock_timeout = '60s';
DROP INDEX CONCURRENTLY IF EXISTS inventory_example_idx;
