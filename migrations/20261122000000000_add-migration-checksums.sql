-- Unused. Versions before 3.0.0 filled the column, and showed a migration that was changed since; later ones leave it empty. It stays,
-- because applied migrations do not change, and an older version may still run.

-- Up Migration
SET LOCAL lock_timeout = '2s';

ALTER TABLE pgmigrations ADD COLUMN checksum text;

-- Down Migration
SET LOCAL lock_timeout = '2s';

ALTER TABLE pgmigrations DROP COLUMN checksum;
