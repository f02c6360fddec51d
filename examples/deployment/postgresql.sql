-- One role and two databases, made by the database's superuser:
--
--     HUSHQUERY_PASSWORD=... psql -X -v ON_ERROR_STOP=1 -f postgresql.sql
--
-- The tables are made by the first worker that starts.

\getenv password HUSHQUERY_PASSWORD

-- The next statement holds a password: it is not logged, not even when it fails because the role exists already.
SET log_statement = 'none';
SET log_min_duration_statement = -1;
SET log_min_error_statement = 'panic';
CREATE ROLE hushquery LOGIN PASSWORD :'password' NOSUPERUSER NOCREATEDB NOCREATEROLE CONNECTION LIMIT 90;

-- Reports, epochs, tokens, releases. It may be restored from a backup.
CREATE DATABASE hushquery_reports OWNER hushquery TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C';
-- What was spent. It is apart because it must never go back to an older state.
CREATE DATABASE hushquery_ledger OWNER hushquery TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C';
REVOKE ALL ON DATABASE hushquery_reports FROM PUBLIC;
REVOKE ALL ON DATABASE hushquery_ledger FROM PUBLIC;

-- A commit is on the disk before a report is acknowledged, whatever the server's default is; and no value is in a log.
ALTER ROLE hushquery SET synchronous_commit = 'on';
ALTER ROLE hushquery SET log_statement = 'none';
ALTER ROLE hushquery SET log_min_duration_statement = -1;
ALTER ROLE hushquery SET log_parameter_max_length_on_error = 0;
ALTER ROLE hushquery SET log_min_error_statement = 'panic';
ALTER ROLE hushquery SET log_error_verbosity = 'terse';

-- Reports that are erased leave the write-ahead log soon: its old files are deleted instead of kept for later, and the
-- collector may ask for that when it has erased something.
ALTER SYSTEM SET wal_recycle = off;
SELECT pg_reload_conf();
SELECT 'GRANT pg_checkpoint TO hushquery' FROM pg_roles WHERE rolname = 'pg_checkpoint' \gexec
\connect hushquery_reports
GRANT EXECUTE ON FUNCTION pg_switch_wal() TO hushquery;
