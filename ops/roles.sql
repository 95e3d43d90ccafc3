-- The roles of the server and of the operators. Run it once, as a superuser who is connected to the service's database, here with
-- the name inventory, and put passwords in the place of the dots. The statements from the first REVOKE on take away what PostgreSQL
-- grants to everyone; repeat them in a new database. docs/integrations.md says what to do then.
CREATE ROLE inventory_server LOGIN PASSWORD '…';
CREATE ROLE inventory_operator LOGIN PASSWORD '…';
ALTER ROLE inventory_server SET lock_timeout = '250ms';
ALTER ROLE inventory_server SET statement_timeout = '5s';
ALTER ROLE inventory_server SET idle_in_transaction_session_timeout = '5s';
REVOKE ALL ON DATABASE inventory FROM PUBLIC;
GRANT CONNECT ON DATABASE inventory TO inventory_server;
GRANT CONNECT, TEMPORARY ON DATABASE inventory TO inventory_operator;
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION lo_close(integer), lo_creat(integer), lo_create(oid), lo_from_bytea(oid, bytea), lo_get(oid),
  lo_get(oid, bigint, integer), lo_lseek(integer, integer, integer), lo_lseek64(integer, bigint, integer), lo_open(oid, integer),
  lo_put(oid, bigint, bytea), lo_tell(integer), lo_tell64(integer), lo_truncate(integer, integer), lo_truncate64(integer, bigint),
  lo_unlink(oid), loread(integer, integer), lowrite(integer, bytea) FROM PUBLIC;
-- Enough for a list of 50 million entries. Only a superuser may set it; otherwise leave it out.
ALTER ROLE inventory_server SET temp_file_limit = '4GB';
