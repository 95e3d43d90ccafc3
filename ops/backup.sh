#!/bin/sh
# Backs up the database of docker-compose.yml, in the profile "backup":
#   backup.sh every           write a backup whenever the newest is BACKUP_INTERVAL_HOURS hours old; the container runs this
#   backup.sh now             write one backup
#   backup.sh list            list the backups, the newest last, by the time in their names, which is UTC and not in the future
#   backup.sh drill [file]    restore the backup, or the newest, into a scratch database, count its rows, and drop it
#   backup.sh restore [file]  replace the database with the backup, or the newest; the former one stays under another name
#   backup.sh settings        fail if a setting is wrong
#   backup.sh health          fail if the newest backup is older than one and a half intervals, or the time of any is in the future
# For file, - is a backup on standard input. A successful backup deletes those older than BACKUP_KEEP_DAYS days, and no other files.
set -eu

fail() {
  printf 'backup.sh: %s\n' "$2" >&2
  exit "$1"
}

query() {
  psql --no-psqlrc --quiet --tuples-only --no-align --set=ON_ERROR_STOP=1 --dbname="$1" --command="$2"
}

# Lists the files with names of backups, or with an argument those that have more in their names.
files() { ls -p | grep -xE "inventory-[0-9]{8}T[0-9]{6}Z\.dump${1:-}"; }

# Passes on the names that sort up to, or after, that of a backup of so many seconds ago.
make_name() { date -u -d "@$(($(date +%s) - $1))" +inventory-%Y%m%dT%H%M%SZ.dump; }
older() { awk -v limit="$(make_name "$1")" '$0 <= limit'; }
newer() { awk -v limit="$(make_name "$1")" '$0 > limit'; }

# The clock was ahead when a file with a time in the future was written, so that is not the newest.
list() { files | older 0; }

is_newest_within() { list | newer "$1" | grep -q .; }

now() {
  time=$(date -u +%Y-%m-%dT%H:%M:%SZ)
  name=inventory-$(echo "$time" | tr -d :-).dump
  # Another container may write a backup in the same second.
  part=$(mktemp "$name.part.XXXXXX")
  # If it fails, so that failed backups do not fill the disk.
  trap 'rm -f "$part"' EXIT
  echo "backup.sh: writing $name"
  pg_dump --format=custom --file="$part"
  mv "$part" "$name"
  # For `inventory status` and the metrics: every role can read it, and no dump contains it.
  query inventory "COMMENT ON DATABASE inventory IS 'Last backup: $time'"
  files | older "$((BACKUP_KEEP_DAYS * 86400))" | xargs rm -f
  # What a killed container left. A younger one may belong to another container that is writing it now.
  files '\.part.*' | older 86400 | xargs rm -f
  echo "backup.sh: wrote $name, $(wc -c <"$name") bytes; $(list | wc -l) backups kept"
}

health() {
  ahead=$(files | newer 0)
  [ -z "$ahead" ] || fail 1 "the clock is wrong, or was when these were written; set it, then delete or rename them: $ahead"
  is_newest_within "$((BACKUP_INTERVAL_HOURS * 5400))"
}

# Makes the backup that is named, by default the newest, the standard input.
open() {
  dump=${2-$(list | tail -n 1)}
  if [ "$dump" = - ]; then return; fi
  [ -r "$dump" ] || fail 1 "there is no backup ${dump:-yet}; \"backup.sh list\" lists them, \"backup.sh now\" writes one. If the file \
exists, this user cannot read it: use standard input, - <file"
  exec <"$dump"
}

# Restores the open backup into a new database, in one transaction and with an option, and counts its rows.
restore_into() {
  # Another container may do the same.
  scratch=$1_$(od -An -tx1 -N4 /dev/urandom | tr -d ' \n')
  printf 'backup.sh: restoring %s into the new database %s\n' "$dump" "$scratch"
  createdb "$scratch"
  trap 'dropdb --if-exists --force "$scratch"' EXIT
  pg_restore --dbname="$scratch" --exit-on-error --single-transaction ${2:+"$2"}
  # The planner's statistics are not in a dump.
  query "$scratch" ANALYZE
  counts=$(query "$scratch" "
    SELECT (SELECT count(*) FROM inventory) || ' entries, ' || (SELECT count(*) FROM api_keys) || ' keys, '
      || (SELECT count(*) FROM pgmigrations) || ' migrations'")
  printf 'backup.sh: restored %s: %s\n' "$dump" "$counts"
}

# A database with a subscription could not be dropped.
drill() { restore_into inventory_drill --no-subscriptions; }

restore() {
  sessions=$(query postgres "
    SELECT count(*) FROM pg_stat_activity WHERE datname = 'inventory' AND backend_type = 'client backend'")
  [ "$sessions" = 0 ] || fail 1 "the database is in use (sessions: $sessions); nothing was changed. End them, the service with \
\"docker compose stop api api-2\", and try again"
  restore_into inventory_restored
  former="inventory_before_$(date -u +%Y%m%dT%H%M%SZ | tr TZ tz)"
  query postgres "ALTER DATABASE inventory RENAME TO $former; ALTER DATABASE $scratch RENAME TO inventory"
  echo "backup.sh: the former database, with its replication slots, is now $former"
}

for name in BACKUP_INTERVAL_HOURS BACKUP_KEEP_DAYS; do
  value=$(printenv "$name") || true
  echo "$value" | grep -qxE '[1-9][0-9]{0,3}' || fail 2 "$name must be a whole number from 1 to 9999, not \"$value\""
done
[ -z "${DATABASE_URL:-}" ] ||
  fail 2 "this backs up only the database of docker-compose.yml, but DATABASE_URL names another; use pg_dump"
if [ "${1:-}" = settings ]; then exit; fi

PGPASSWORD=$(cat /run/password/postgres)
export PGHOST=db PGUSER=inventory PGDATABASE=inventory PGOPTIONS=--client-min-messages=warning PGPASSWORD
umask 077
cd /backup
# Without this, a signal would end the shell without its trap on EXIT, which removes what is unfinished.
trap 'exit 143' TERM INT

case "${1:-}" in
  now | list | health) "$1" ;;
  drill | restore)
    open "$@"
    "$1"
    ;;
  every)
    # In a process of its own, because a shell ignores `set -e` in a function whose failure is handled.
    while true; do
      if ! is_newest_within "$((BACKUP_INTERVAL_HOURS * 3600))" && ! sh "$0" now; then
        echo 'backup.sh: the backup failed; retrying in 10 minutes' >&2
        sleep 540
      fi
      sleep 60
    done
    ;;
  *)
    sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
