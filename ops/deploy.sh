#!/bin/sh
# Deploys this checkout and the settings in .env, or the image of a version that was deployed from here before: ops/deploy.sh [3.1.0].
# Nothing is replaced until all is checked, and one half of the service serves while `docker compose up` replaces the other.
set -eu
cd "$(dirname "$0")/.."
has() { docker compose config --services | grep -qx "$1"; }
run() { if has "$1"; then docker compose run --rm --no-deps -T "$@"; fi; }
up() { docker compose up --detach --wait --no-deps "$@"; }
healthy() { docker compose ps --format '{{.Health}} {{.Service}}' api api-2 | sed -n 's/^healthy //p' | sort -u; }
version_of() { docker inspect --format '{{index .Config.Labels "org.opencontainers.image.version"}}' "$1"; }
image=$(docker compose config | awk '/^  [^ ]/ { service = $1 } service == "api:" && $1 == "image:" { gsub("\"", ""); print $2 }')
# Only the name of an image in a registry has one of these.
case $image in *[:/]*) is_built=false ;; *) is_built=true ;; esac
former=$(healthy | head -n 1 | xargs -r docker compose ps --quiet | head -n 1 | xargs -r docker inspect --format '{{.Image}}')
undo() {
  trap '' HUP INT TERM
  # Unless the image serves by now, at the end or because of another deployment.
  if [ "$former" ] && [ -z "$(docker ps --quiet --filter "ancestor=$image" --filter health=healthy)" ]; then
    if $is_built; then docker tag "$former" "$image"; else export IMAGE="$former"; fi
  fi
  if [ "${part:-}" ] && ! healthy | grep -qx "$part"; then up "$part"; fi
}
trap undo EXIT
trap 'exit 143' HUP INT TERM
if $is_built && [ "$former" ]; then docker tag "$former" "$image:$(version_of "$former")"; fi
if [ $# -gt 0 ]; then docker tag "$image:$1" "$image"; elif $is_built; then docker compose build migrate; else docker pull "$image"; fi
echo 'deploy.sh: checking CERTIFICATE, PROXIES and RATE_LIMIT, and that no other program has the ports of PUBLISH and PUBLISH_HTTPS'
ports=$(docker compose config balancer | tr -d '"' | awk -v old="$(docker compose ps --format '{{.Ports}}')" '
  $1 == "host_ip:" { ip = "[" $2 "]:" }
  $1 == "published:" { if (!index(old, ":" $2 "->")) print "--publish=" ip $2 ":3000"; ip = "" }')
docker compose run --rm --no-deps -T $ports balancer haproxy -c -f /ops/haproxy.cfg
for service in password backup-settings; do run "$service"; done
# Fails if the image does not start with these settings.
run api timeout 120 sh -c 'node dist/server.js >/dev/null &
  until http_proxy= wget -q -O /dev/null http://127.0.0.1:3000/livez; do kill -0 $! 2>/dev/null && sleep 1 || exit 1; done'
if has db; then docker compose up --detach --wait --no-recreate db; fi
for service in roles migrate; do run "$service"; done
if healthy | grep -qx api; then set -- api-2 api; else set -- api api-2; fi
# Without a balancer, `api` may publish its port, as versions before 3.0.0 did.
if [ "$(docker compose ps --quiet balancer)" ]; then set -- balancer "$@"; else set -- "$@" balancer; fi
for part; do
  # Another deployment may be replacing the other half.
  while [ "$(healthy)" = "$part" ]; do sleep 1; done
  up "$part"
done
# HAProxy reads its files again, unless their folder was replaced, which a mount does not follow.
docker compose exec -T balancer cmp -s - /ops/haproxy.cfg <ops/haproxy.cfg || up --force-recreate balancer
docker compose kill --signal USR2 balancer
for service in backup prometheus grafana; do if has "$service"; then up --build "$service"; fi; done
echo "deploy.sh: version $(version_of "$image") serves; \"Roll back\" in docs/operating.md says how to go back"
