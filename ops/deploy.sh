#!/bin/sh
# Deploys this checkout and the settings in .env with docker compose, one container of `api` after the other, or goes back to
# the image of an earlier version: ops/deploy.sh 1.0.0
# Leaves the database alone. Ends at the first failure; the containers that are not yet replaced keep serving. `docker compose up`
# cannot do that: it replaces all containers before a service that they depend on could check anything.
set -eu
cd "$(dirname "$0")/.."

containers=$(docker compose ps --all --quiet api)
count=$(echo "$containers" | wc -w)

if [ $# -gt 0 ]; then
  docker tag "petstore-inventory:$1" petstore-inventory
else
  for container in $containers; do
    version=$(docker inspect --format '{{index .Config.Labels "org.opencontainers.image.version"}}' "$container")
    docker tag "$(docker inspect --format '{{.Image}}' "$container")" "petstore-inventory:$version"
  done
  docker compose build
  # An external database has no services that create passwords and roles.
  services=$(docker compose config --services)
  run() { case $services in *"$1"*) docker compose run --rm --no-deps "$@" ;; esac; }
  run password
  run api inventory config >/dev/null
  run roles
  run migrate
fi

replace() {
  docker stop "$@" >/dev/null
  docker rm "$@" >/dev/null
  docker compose up --detach --wait --no-deps --no-recreate --scale "api=$count" api
}

# After a failed deployment, stop no container that serves before those that do not are replaced.
serving=
broken=
for container in $containers; do
  case $(docker inspect --format '{{.State.Status}} {{.State.Health.Status}}' "$container") in
    'running healthy') serving="$serving $container" ;;
    *) broken="$broken $container" ;;
  esac
done
# shellcheck disable=SC2086
[ -z "$broken" ] || replace $broken
for container in $serving; do replace "$container"; done
