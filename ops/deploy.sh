#!/bin/sh
# Deploys this checkout and the settings in .env with docker compose, or goes back to the image of another version:
#   ops/deploy.sh            build the image, check all settings, migrate, and replace one container after the other
#   ops/deploy.sh 2.0.0      the same with an image that was deployed before; the schema stays the newer one
# Each new container has to be healthy before an old one is stopped, so no request fails. Ends at the first failure; the containers
# that are not yet replaced keep serving. `docker compose up` cannot do that: it replaces all containers before a service that they
# depend on could check anything. Leaves the database alone, unless it is not running. The log of each container that goes is kept
# in the folder `logs`.
set -eu
cd "$(dirname "$0")/.."
KEEP_LOGS=20

fail() {
  echo "deploy.sh: $1" >&2
  exit 1
}

# Compose ignores what it does not know. The names are those of .env.example, those that docker-compose.yml passes on, those that your
# files beside it use, and Compose's own.
if [ -f .env ]; then
  names=$({
    sed -nE 's/^(# |  )([A-Z_]+)(=.*|:)$/\2/p' .env.example docker-compose.yml
    grep -ohE '\$\{[A-Za-z0-9_]+' ./*.yml | cut -c 3-
  } | paste -sd '|' -)
  compose='ANSI|BAKE|COMPATIBILITY|CONVERT_WINDOWS_PATHS|DISABLE_ENV_FILE|ENV_FILES|EXPERIMENTAL|FILE|IGNORE_ORPHANS|MENU|PARALLEL_LIMIT'
  compose="$compose|PATH_SEPARATOR|PROFILES|PROGRESS|PROJECT_NAME|REMOVE_ORPHANS|STATUS_STDOUT"
  wrong=$(grep -nvE "^[[:space:]]*(#.*)?\$|^[[:space:]]*(export[[:space:]]+)?($names|COMPOSE_($compose))[[:space:]]*=" .env |
    sed -nE 's/^([0-9]+):[[:space:]]*([A-Za-z0-9_.-]*).*/  line \1: \2/p')
  if [ -n "$wrong" ]; then
    fail ".env has lines that are not NAME=value with a name that is known here, such as those in .env.example:
$wrong"
  fi
fi

config=$(docker compose config 2>&1) || {
  echo "$config" >&2
  case $config in
    *services.api.scale*) fail 'REPLICAS must be a whole number from 1 to 16' ;;
    *) fail 'compose refuses the settings' ;;
  esac
}
project=$(echo "$config" | sed -n 's/^name: "\{0,1\}\([^"]*\)"\{0,1\}$/\1/p')
replicas=$(echo "$config" | sed -n 's/^    scale: //p')
image=$project-inventory
services=$(docker compose config --services)
echo "deploy.sh: project $project, $replicas containers"

has() { echo "$services" | grep -qx "$1"; }
# An external database has no services that create passwords and roles.
run() { if has "$1"; then docker compose run --rm --no-deps "$@"; fi; }
# Without those of `docker compose run`.
containers() {
  docker ps --all --quiet --no-trunc --filter "label=com.docker.compose.project=$project" \
    --filter label=com.docker.compose.service=api --filter label=com.docker.compose.oneoff=False
}
state_of() { docker inspect --format '{{.State.Status}} {{.State.Health.Status}}' "$1"; }
image_of() { docker inspect --format '{{.Image}}' "$1"; }
version_of() { docker inspect --format '{{index .Config.Labels "org.opencontainers.image.version"}}' "$1"; }

# Only an image that serves gets the tag of its version.
previous=
serving=
broken=
for container in $(containers); do
  if [ "$(state_of "$container")" = 'running healthy' ]; then
    serving="$serving $container"
    previous=$(image_of "$container")
    docker tag "$previous" "$image:$(version_of "$container")"
  else
    broken="$broken $container"
  fi
done
# A later `docker compose up` must not start an image that failed.
restore() { if [ -n "$previous" ]; then docker tag "$previous" "$image"; fi; }
trap restore EXIT

if [ $# -gt 0 ]; then
  docker tag "$image:$1" "$image" || fail "there is no image of that version; \"docker images $image\" lists them"
else
  docker compose build
fi
! has db || docker compose up --detach --wait --no-recreate db
if [ $# -eq 0 ]; then
  run password
  run api inventory config >/dev/null
  run backup-settings
  run balancer-settings
  run roles
else
  run balancer-settings
fi
# An earlier version leaves newer migrations alone, and grants what it needs.
run migrate

start_one() {
  before=$(containers)
  docker compose up --detach --wait --no-deps --no-recreate --scale "api=$(($(echo "$before" | wc -w) + 1))" api && return
  for container in $(containers); do
    case $before in
      *"$container"*) ;;
      *)
        docker logs --tail 20 "$container" >&2
        remove "$container"
        ;;
    esac
  done
  fail 'the new container is not healthy, see its log above'
}

remove() {
  docker stop "$1" >/dev/null
  (umask 077 && docker logs "$1" 2>&1 | gzip >"logs/$(date -u +%Y%m%dT%H%M%SZ)-$(echo "$1" | cut -c 1-12).log.gz")
  docker rm "$1" >/dev/null
}

(umask 077 && mkdir -p logs)
# Those that do not serve go first, then one for each new one, then those that are too many.
for container in $broken; do remove "$container"; done
# shellcheck disable=SC2086
set -- $serving
started=0
while [ "$started" -lt "$replicas" ]; do
  start_one
  started=$((started + 1))
  if [ $# -gt 0 ]; then
    remove "$1"
    shift
  fi
  # Only now, because the containers of 2.0.0 may publish its port.
  docker compose up --detach --wait --no-deps balancer
done
for container; do remove "$container"; done
find logs -name '*.log.gz' | sort -r | tail -n "+$((KEEP_LOGS + 1))" | xargs rm -f

new=$(docker image inspect --format '{{.Id}}' "$image")
healthy=0
for container in $(containers); do
  if [ "$(state_of "$container") $(image_of "$container")" = "running healthy $new" ]; then healthy=$((healthy + 1)); fi
done
[ "$healthy" -eq "$replicas" ] || fail "$healthy of $replicas containers are running and healthy"
docker tag "$image" "$image:$(version_of "$(containers | head -n 1)")"
previous=
if has backup; then docker compose up --detach --no-deps backup; fi
echo "deploy.sh: $healthy containers are running and healthy"
