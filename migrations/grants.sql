-- What each role needs, and nothing else. "inventory migrate up" runs the part for the server with the name of --server-role in
-- place of {role}, and the part for the operators with that of --operator-role. The names of the database
-- and of the tables' schema are those of the connection. PostgreSQL only warns if the owner of the tables does not own the database or the schema.

-- Server
-- As the migration did. A dump that is restored without privileges lacks it.
REVOKE EXECUTE ON FUNCTION record_inventory_history() FROM PUBLIC;
GRANT CONNECT ON DATABASE {database} TO {role};
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT ON inventory TO {role};
GRANT UPDATE (quantity) ON inventory TO {role};
GRANT SELECT ON api_keys TO {role};
GRANT SELECT ON pgmigrations TO {role};

-- Operators
GRANT CONNECT ON DATABASE {database} TO {role};
GRANT TEMPORARY ON DATABASE {database} TO {role};
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT ON inventory TO {role};
GRANT INSERT ON inventory TO {role};
GRANT UPDATE ON inventory TO {role};
GRANT DELETE ON inventory TO {role};
GRANT SELECT ON api_keys TO {role};
GRANT INSERT ON api_keys TO {role};
GRANT UPDATE (revoked_at) ON api_keys TO {role};
GRANT SELECT ON pgmigrations TO {role};
GRANT SELECT ON inventory_history TO {role};
