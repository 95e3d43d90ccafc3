#!/bin/sh
# Deploys this checkout and the settings in .env, or the image of a version that was deployed from here before: ops/deploy.sh [3.1.0].
# Nothing is replaced until all is checked, and one half of the service serves while `docker compose up` replaces the other.
set -eu
cd "$(dirname "$0")/.."
fail() {
  echo "deploy.sh: $1" >&2
  exit 1
}
# The lock of this folder ends with this process and those that it started.
exec 9<.
if ! command -v flock >/dev/null; then
  echo 'deploy.sh: run one deployment at a time; without flock, another one does not wait'
elif ! flock -n 9; then
  echo 'deploy.sh: waiting for another deployment from this folder'
  flock 9
fi
# Fails if Compose refuses a setting.
config=$(docker compose config)
setting() { echo "$config" | awk -v service="$1:" -v name="$2:" '/^  [^ ]/ { at = $1 } at == service && $1 == name { print $2 }'; }
has() { docker compose config --services | grep -qx "$1"; }
run() { if has "$1"; then docker compose run --rm --no-deps -T "$@"; fi; }
up() { docker compose up --detach --wait --no-deps "$@"; }
read_id() { docker inspect --format '{{.Id}}' "$1"; }
read_version() { docker inspect --format '{{index .Config.Labels "org.opencontainers.image.version"}}' "$1"; }
# Lists the halves that serve, each with its image. Docker calls a container healthy until it has stopped.
serving() {
  for id in $(docker compose ps --quiet api api-2); do
    if docker exec --env http_proxy= "$id" wget -q -O /dev/null http://127.0.0.1:3000/readyz 2>/dev/null; then
      docker inspect --format '{{index .Config.Labels "com.docker.compose.service"}} {{.Image}}' "$id"
    fi
  done
}
# Starts the service with these settings, reachable only for itself, until it answers at a path.
check() {
  docker compose run --rm --no-deps -T --env HOST=127.0.0.1 api timeout 120 sh -c 'export http_proxy=; node dist/server.js >/dev/null &
    until wget -q -O /dev/null "http://127.0.0.1:3000$0" && wget -q -O /dev/null "http://127.0.0.1:$METRICS_PORT/metrics"; do
      kill -0 $! 2>/dev/null && sleep 1 || wait $! || exit
    done' "$1" || fail "the service $2 with these settings, so nothing was replaced (exit code $?; if it is 137, raise MEMORY_LIMIT)"
}
case $(setting api scale) in [1-9] | 1[0-6]) ;; *) fail 'REPLICAS must be a whole number from 1 to 16' ;; esac
shared=$(echo "$config" | awk '$1 == "published:" { print $2 }' | sort | uniq -d)
[ -z "$shared" ] || fail "the port $shared cannot be published twice: change PUBLISH or PUBLISH_HTTPS"
image=$(setting api image | tr -d '"')
# Only the name of an image in a registry has one of these.
case $image in *[:/]*) is_built=false ;; *) is_built=true ;; esac
$is_built || [ $# = 0 ] || fail "set IMAGE to that of version $1, and run this without a version"
former=$(serving | sed -n '1s/.* //p')
undo() {
  trap '' HUP INT TERM
  # Unless the new image serves already.
  if [ "$former" ] && ! serving | grep -q " $(read_id "$image")$"; then
    if $is_built; then docker tag "$former" "$image"; else export IMAGE="$former"; fi
  fi
  # Docker may still be stopping a container: then the first attempt finds it running, and fails.
  if [ "${part:-}" ] && ! serving | grep -q "^$part "; then up "$part" || up "$part"; fi
}
trap undo EXIT
trap 'exit 143' HUP INT TERM
if [ $# -gt 0 ]; then docker tag "$image:$1" "$image"; elif $is_built; then docker compose build migrate; else docker pull "$image"; fi
# The way back, unless this is the way back to a former image of the same version.
if $is_built && [ "$former" ] && [ "$former" != "$(read_id "$image")" ] && [ "$(read_version "$former")" != "${1:-}" ]; then
  docker tag "$former" "$image:$(read_version "$former")"
fi
echo 'deploy.sh: checking CERTIFICATE, PROXIES and RATE_LIMIT, and that no other program has the ports of PUBLISH and PUBLISH_HTTPS'
ports=$(docker compose config balancer | tr -d '"' | awk -v old="$(docker compose ps --format '{{.Ports}}' balancer)" '
  $1 == "host_ip:" { ip = "[" $2 "]:" }
  $1 == "published:" { if (!index(old, ":" $2 "->")) print "--publish=" ip $2 ":3000"; ip = "" }')
docker compose run --rm --no-deps -T $ports balancer haproxy -c -f /ops/haproxy.cfg
for service in password backup-settings; do run "$service"; done
check /livez 'does not start'
if has db; then docker compose up --detach --wait --no-recreate db; fi
for service in roles migrate; do run "$service"; done
check /readyz 'is not ready'
if serving | grep -q '^api '; then set -- api-2 api; else set -- api api-2; fi
for part in balancer "$@"; do up "$part"; done
# HAProxy reads its files again, unless their folder was replaced, which a mount does not follow.
docker compose exec -T balancer cmp -s - /ops/haproxy.cfg <ops/haproxy.cfg || up --force-recreate balancer
docker compose exec -T balancer sh -c 'kill -USR2 1'
# Once a container was signaled by `docker compose kill`, Docker restarts it only with this policy.
docker update --restart always "$(docker compose ps --quiet balancer)" >/dev/null
for service in backup prometheus grafana; do if has "$service"; then up --build "$service"; fi; done
if [ "$(setting balancer CERTIFICATE)" != '""' ]; then scheme=https port=3443; else scheme=http port=3000; fi
address=$(docker compose port balancer "$port" | sed 's/^0\.0\.0\.0:/localhost:/')
echo "deploy.sh: version $(read_version "$image") serves at $scheme://$address; \"Roll back\" in docs/operating.md says how to go back"
