#!/bin/sh
# Backs up the database of docker-compose.yml, in the profile "backup":
#   backup.sh every           write a backup now, and then every BACKUP_INTERVAL_HOURS hours; the container runs this
#   backup.sh now             write one backup
#   backup.sh list            list the backups, oldest first, by their time in UTC
#   backup.sh drill [file]    restore the backup, or the newest, into a scratch database, count its rows, and drop it
#   backup.sh restore [file]  replace the database with the backup, or the newest; the former one stays under another name
# After a successful backup, those older than BACKUP_KEEP_DAYS days are deleted.
set -eu
export PGHOST=db PGUSER=inventory PGDATABASE=inventory PGOPTIONS=--client-min-messages=warning
PGPASSWORD=$(cat /run/password/postgres)
export PGPASSWORD
umask 077
cd /backup
# Without this, a signal would end the shell without its trap on EXIT, which removes what is unfinished.
trap 'exit 143' TERM INT

check_settings() {
  for setting in "$BACKUP_INTERVAL_HOURS" "$BACKUP_KEEP_DAYS"; do
    case "$setting" in
      '' | 0* | *[!0-9]*)
        echo "backup.sh: BACKUP_INTERVAL_HOURS and BACKUP_KEEP_DAYS must be whole numbers from 1, not \"$setting\"" >&2
        exit 2
        ;;
    esac
  done
}

backup() {
  name="inventory-$(date -u +%Y%m%dT%H%M%SZ).dump"
  # If it fails, so that failed backups do not fill the disk.
  trap 'rm -f "$name.part"' EXIT
  pg_dump --format=custom --file="$name.part"
  # Keep the older backups unless this one can be read.
  pg_restore --list "$name.part" >/dev/null
  mv "$name.part" "$name"
  find . -name 'inventory-*.dump' -mmin "+$((BACKUP_KEEP_DAYS * 1440))" -exec rm {} +
  # What a killed container left. A younger one may belong to another container that is writing it now.
  find . -name 'inventory-*.dump.part' -mtime +0 -exec rm {} +
  echo "backup.sh: wrote $name, $(wc -c <"$name") bytes; $(list | wc -l) backups kept"
}

list() {
  find . -name 'inventory-*.dump' | sed 's|^\./||' | sort
}

query() {
  psql --no-psqlrc --quiet --tuples-only --no-align --set=ON_ERROR_STOP=1 --dbname="$1" --command="$2"
}

# Restores a backup, by default the newest, in one transaction, and counts its rows.
restore_into() {
  dump=${2:-$(list | tail -n 1)}
  if [ ! -f "$dump" ]; then
    echo "backup.sh: there is no backup ${dump:-yet}; \"backup.sh list\" lists them, \"backup.sh now\" writes one" >&2
    exit 1
  fi
  pg_restore --dbname="$1" --exit-on-error --single-transaction "$dump"
  # A dump of PostgreSQL 17 has no statistics for the planner.
  query "$1" ANALYZE
  query "$1" "
    SELECT 'backup.sh: restored $dump: ' || (SELECT count(*) FROM inventory) || ' entries, '
      || (SELECT count(*) FROM api_keys) || ' keys, ' || (SELECT count(*) FROM pgmigrations) || ' migrations'"
}

drill() {
  dropdb --if-exists --force inventory_drill
  createdb inventory_drill
  trap 'dropdb --if-exists --force inventory_drill' EXIT
  restore_into inventory_drill "${1:-}"
}

restore() {
  sessions=$(query postgres "SELECT count(*) FROM pg_stat_activity WHERE datname = 'inventory'")
  if [ "$sessions" != 0 ]; then
    echo "backup.sh: the database is in use (sessions: $sessions); nothing was changed." \
      'End them, the service with "docker compose stop api", and try again' >&2
    exit 1
  fi
  tables=$(query inventory "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
  dropdb --if-exists --force inventory_restored
  createdb inventory_restored
  trap 'dropdb --if-exists --force inventory_restored' EXIT
  restore_into inventory_restored "${1:-}"
  former="inventory_before_$(date -u +%Y%m%dT%H%M%SZ | tr TZ tz)"
  query postgres "ALTER DATABASE inventory RENAME TO $former; ALTER DATABASE inventory_restored RENAME TO inventory"
  if [ "$tables" = 0 ]; then dropdb "$former"; else echo "backup.sh: the former database is now $former"; fi
}

case "${1:-}" in
  now)
    check_settings
    backup
    ;;
  list) list ;;
  drill) drill "${2:-}" ;;
  restore) restore "${2:-}" ;;
  every)
    check_settings
    while true; do
      # In a process of its own, because a shell ignores `set -e` in a function whose failure is handled.
      if sh "$0" now; then
        sleep "$((BACKUP_INTERVAL_HOURS * 3600))"
      else
        echo 'backup.sh: the backup failed; retrying in 10 minutes' >&2
        sleep 600
      fi
    done
    ;;
  *)
    sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
