-- The API keys that operators make. Of a key only its SHA-256 is kept, so that nobody who reads this table gets in.
-- A key ends at expires_at, set when it was made, or at revoked_at, decided later and in the future while a key that
-- was replaced may still be used. Among the keys that nobody has revoked a name stands for one key; versions that do
-- not know this table are not concerned.

-- Up Migration
SET LOCAL lock_timeout = '2s';

CREATE TABLE api_keys (
  digest bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
  name text NOT NULL CHECK (name ~ '^[A-Za-z0-9_-]{1,64}$'),
  created_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz CHECK (expires_at > created_at),
  revoked_at timestamptz,
  last_used_at timestamptz
);

CREATE UNIQUE INDEX api_keys_name_key ON api_keys (name) WHERE revoked_at IS NULL;

-- Down Migration
SET LOCAL lock_timeout = '2s';

DROP TABLE api_keys;
