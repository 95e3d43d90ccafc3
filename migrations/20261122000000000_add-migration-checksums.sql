-- What a migration said when it was applied, so that "inventory migrate status" shows one that was changed since. Older
-- versions do not know the column and leave it empty; it is filled by the next run of this one.

-- Up Migration
SET LOCAL lock_timeout = '2s';

ALTER TABLE pgmigrations ADD COLUMN checksum text;

-- Down Migration
SET LOCAL lock_timeout = '2s';

ALTER TABLE pgmigrations DROP COLUMN checksum;
