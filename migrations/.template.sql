-- Why this change is needed, and what must hold while the version before it still runs on the new schema.

-- Up Migration
SET LOCAL lock_timeout = '2s';

-- Down Migration
SET LOCAL lock_timeout = '2s';
