-- The stock level of every pet. The checks repeat the bounds of the interface, so that nothing else that writes
-- to this table (an import, a person with psql) can store a row that the service would have to misreport.

-- Up Migration
SET LOCAL lock_timeout = '2s';

CREATE TABLE inventory (
  pet_id bigint PRIMARY KEY,
  quantity integer NOT NULL CHECK (quantity >= 0),
  status text NOT NULL CHECK (status IN ('available', 'pending', 'sold'))
);

-- Down Migration
SET LOCAL lock_timeout = '2s';

DROP TABLE inventory;
