#!/bin/sh
# Deploys this checkout and the settings in .env with docker compose, or goes back to the image of another version:
#   ops/deploy.sh            build the image, or pull IMAGE, check all settings, migrate, and replace one container after the other
#   ops/deploy.sh 2.0.0      the same with an image that was deployed from here before; the schema stays the newer one
# No request fails, because each old container stays until a new one is healthy; `docker compose up` replaces all of them at once. After a
# failure or Ctrl-C, what served before keeps serving. Leaves running containers of PostgreSQL and, unless its ports change, HAProxy
# alone. Keeps the logs of the last 20 removed ones in `logs`.
set -eu
umask 077
cd "$(dirname "$0")/.."

fail() {
  echo "deploy.sh: $1" >&2
  exit 1
}
# Without this, a signal would end the shell without its trap on EXIT.
trap 'exit 143' HUP INT TERM

mkdir -p logs
exec 9>>logs/lock
flock -n 9 || fail "another deployment is running: $(cat logs/lock)"
echo "process $$ of $(id -un), since $(date -u +%H:%M:%S) UTC" >logs/lock

# Compose ignores every name but its own, and those that the files in use contain, as ${NAME} or to pass them on.
if [ -f .env ]; then
  files="*compose*.y*ml ops/balancer.yml ${COMPOSE_FILE:-$(sed -n 's/^[^A-Z#]*COMPOSE_FILE *=//p' .env)}"
  # shellcheck disable=SC2046
  names=$(cat $(echo "$files" | tr ":\"'\r" ' ') |
    grep -oE '(^|[^$])\$\{?[A-Za-z_][A-Za-z0-9_]*|^ +(- )?[A-Z_][A-Z0-9_]*:?$' | tr -cd '[:alnum:]_\n' | paste -sd '|' -)
  own='ANSI|BAKE|COMPATIBILITY|FILE|IGNORE_ORPHANS|MENU|PARALLEL_LIMIT|PATH_SEPARATOR|PROFILES|PROGRESS|PROJECT_NAME|REMOVE_ORPHANS'
  wrong=$(grep -nvE "^[^[:alnum:]_]*(#.*)?\$|^[^[:alnum:]_]*(export[[:space:]]+)?($names|COMPOSE_($own))[[:space:]]*=" .env |
    sed -nE 's/^([0-9]+):[^[:alnum:]_]*([A-Za-z0-9_.-]*).*/  line \1: \2/p')
  [ -z "$wrong" ] || fail ".env has lines that are not NAME=value, or whose name has no effect with docker compose:
$wrong"
fi

config=$(docker compose config) || fail 'compose refuses the settings'
section() { echo "$config" | awk -v header="  $1:" '/^ ? ?[^ ]/ { inside = $0 == header } inside'; }
project=$(echo "$config" | sed -n 's/^name: "\{0,1\}\([^"]*\)"\{0,1\}$/\1/p')
replicas=$(section api | sed -n 's/^    scale: //p')
image=$(section api | sed -n 's/^    image: //p')
built=$project-inventory
echo "$built" | grep -qxE '[a-z0-9]+((_|__|-+)[a-z0-9]+)*' ||
  fail "Docker does not allow an image to be called $built; set COMPOSE_PROJECT_NAME in .env to another name than $project"
echo "deploy.sh: project $project, $replicas containers of $image"

# An external database has no services that create passwords and roles.
run() { if [ "$(section "$1")" ]; then docker compose run --rm --no-deps "$@"; fi; }
list() { docker ps --quiet --no-trunc --filter "label=com.docker.compose.project=$project" "$@"; }
# Newest first, without those of `docker compose run`.
containers() { list --all --filter label=com.docker.compose.service=api --filter label=com.docker.compose.oneoff=False "$@"; }
ports() {
  format='{{range .HostConfig.PortBindings}}{{range .}}{{println (print .HostIp ":" .HostPort)}}{{end}}{{end}}'
  list "$@" | xargs -r docker inspect --format "$format" | grep : | sort
}
remove() {
  docker stop "$1" >/dev/null
  docker logs "$1" 2>&1 | gzip >"logs/$(date -u +%Y%m%dT%H%M%SZ)-$(echo "$1" | cut -c 1-12).log.gz"
  docker rm "$1" >/dev/null
}

new_ports=$(section balancer | tr -d "\"'" |
  awk '$1 == "-" { ip = "" } $1 == "host_ip:" { ip = $2 } $1 == "published:" { print ip ":" $2 }' | sort)
for port in $new_ports; do
  ports | grep -q ":${port##*:}\$" || docker compose run --rm --no-deps --publish "${port#:}:1" --entrypoint true balancer ||
    fail "cannot publish port ${port#:}; see PORT, PUBLISH and PUBLISH_HTTPS in .env"
done

# Only images that serve get the tags of their versions.
format='{{.Image}} {{index .Config.Labels "org.opencontainers.image.version"}} {{.Config.Image}}'
serving=$(containers --filter status=running | xargs -r docker inspect --format "$format")
echo "$serving" | while read -r id version _; do [ -z "$id" ] || docker tag "$id" "$built:$version"; done
# A digest always names the same image.
previous=$(echo "$serving" | awk -v image="$image" '$3 == image && !/@/ { id = $1 } END { print id }')
kept=$(containers)
starting() { containers | grep -vxF "$kept"; }
undo() {
  trap '' HUP INT TERM
  # A later `docker compose up` must not start an image that failed.
  [ -z "$previous" ] || docker tag "$previous" "$image"
  for container in $(starting); do remove "$container"; done
}
trap undo EXIT

if [ $# -gt 0 ]; then
  [ "$image" = "$built" ] || fail "to go back, set IMAGE in .env to the image of $1"
  docker tag "$image:$1" "$image" || fail "there is no image of that version; \"docker images $image\" lists them"
else
  docker compose build
  [ "$image" = "$built" ] || docker pull "$image"
fi
[ -z "$(section db)" ] || docker compose up --detach --wait --no-recreate db
run password
[ $# -gt 0 ] || run api inventory config >/dev/null
run backup-settings
run balancer-settings check
run roles
# An earlier version leaves newer migrations alone, and grants what it needs.
run migrate

# `up` would start them again.
for stopped in $(containers --filter status=created --filter status=exited --filter status=dead); do remove "$stopped"; done
# shellcheck disable=SC2046
set -- $(containers)
for number in $(seq "$replicas"); do
  # Without `--wait`, which would wait for the old ones, too.
  docker compose up --detach --no-deps --no-recreate --scale "api=$(($(containers | wc -l) + 1))" api
  until state=$(docker inspect --format '{{.State.Status}} {{.State.Health.Status}} {{.RestartCount}}' "$(starting)") &&
    [ "$state" = 'running healthy 0' ]; do
    [ "$state" = 'running starting 0' ] || fail "the new container is not healthy:
$(docker logs --tail 20 "$(starting)" 2>&1)"
    sleep 1
  done
  kept=$(containers)
  if [ $# -gt 0 ]; then remove "$1" && shift; fi
  if [ "$number" -gt 1 ]; then continue; fi
  # Only now, because a container of 2.0.0 may publish its port. HAProxy must not redirect to a port before it is published.
  if [ "$(ports --filter label=com.docker.compose.service=balancer --filter health=healthy)" != "$new_ports" ]; then
    trap '' HUP INT TERM
    docker compose rm --stop --force balancer
  fi
  run balancer-settings
  docker compose up --detach --wait --no-deps --no-recreate balancer
  trap 'exit 143' HUP INT TERM
done
for old; do remove "$old"; done
previous=
find logs -name '*.log.gz' | sort -r | tail -n +21 | xargs rm -f
[ "$(containers --filter health=healthy | wc -l)" -eq "$replicas" ] || fail 'a container has become unhealthy'
[ -z "$(section backup)" ] || docker compose up --detach --no-deps backup
docker compose config --hash '*' | grep -E '^(db|balancer) ' | while read -r service hash; do
  [ "$(list --filter "label=com.docker.compose.config-hash=$hash")" ] ||
    echo "deploy.sh: the container of $service has former settings; \"docker compose up --detach --wait $service\" restarts it"
done
echo "deploy.sh: $replicas containers are running and healthy"
