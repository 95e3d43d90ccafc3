#!/usr/bin/env bash
# Sets the quantity of one pet and polls the list. Needs curl 7.84 or newer.
#
#   INVENTORY_URL=https://…/v1 INVENTORY_KEY=… ./inventory.sh PET_ID QUANTITY
#
# QUANTITY is the new quantity, such as 5, or a change, such as +5 or -5.
set -euo pipefail

base=${INVENTORY_URL:-http://127.0.0.1:3000/v1}
: "${INVENTORY_KEY:?is the API key}"
timeout=${INVENTORY_TIMEOUT_SECONDS:-10}
pet=${1-}
quantity=${2-}
if [[ ! $pet =~ ^-?[0-9]+$ || ! $quantity =~ ^[+-]?[0-9]+$ ]]; then
  echo 'usage: inventory.sh PET_ID QUANTITY' >&2
  exit 2
fi
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
answer=$folder/answer

# Sends a request. Leaves curl's exit code in $failure, the body in $answer, and the rest of the response in $type, $tag, $after
# and $status. The key is passed through a pipe, because anyone on the machine can read a command line.
request() {
  local result
  failure=0
  : >"$answer"
  result=$(curl --config - --silent --show-error --max-time "$timeout" --output "$answer" \
    --write-out '%{content_type}\n%header{etag}\n%header{retry-after}\n%{http_code}' "$@" \
    <<<"header = \"Authorization: Bearer $INVENTORY_KEY\"") || failure=$?
  { read -r type && read -r tag && read -r after && read -r status; } <<<"$result"
}

# Fails, and says why, unless there was a response with one of these statuses.
expect() {
  if ((failure > 0)); then
    return 1
  elif [[ $status != 304 && $type != application/json* ]]; then
    echo "The response ($status, ${type:-no content type}) is not from the inventory service" >&2
    return 1
  elif [[ " $* " != *" $status "* ]]; then
    cat "$answer" >&2
    echo >&2
    return 1
  fi
}

# Gets the list. curl retries it after a timeout, a lost connection or a temporary error, and waits for as long as Retry-After
# says. Without --fail, --retry-all-errors does not retry permanent errors, such as a 401.
list() {
  request "$base/inventory" --compressed --retry 4 --retry-all-errors --retry-max-time 60 "$@"
  expect 200 304
}

# Whether the last attempt of an update certainly changed nothing. With 5, 6 and 7, curl could not connect.
is_unapplied() {
  case $failure in
    0) ((status < 500)) || grep -q '"code":"nothing_changed"' "$answer" ;;
    5 | 6 | 7) ;;
    *) false ;;
  esac
}

# How many seconds to wait before the next attempt. Retry-After has seconds or a date, which `date` of GNU or BSD reads.
pause() {
  local seconds=0
  if [[ $after =~ ^[0-9]+$ ]]; then
    seconds=$after
  elif [[ -n $after ]]; then
    seconds=$(($(date -d "$after" +%s 2>/dev/null || date -juf '%a, %d %b %Y %T GMT' "$after" +%s) - $(date +%s)))
  fi
  echo $((1 + RANDOM % 2 + (seconds > 0 ? seconds : 0)))
}

# Sends an update up to five times, until there is a 200 or a 412. After an unknown outcome, it is sent again only if the first
# argument is true.
update() {
  local repeatable=$1 unknown=false tries seconds
  shift
  for ((tries = 1; ; tries++)); do
    request "$base/inventory/$pet" --request PATCH "$@"
    if [[ $failure == 0 && $status =~ ^(200|412)$ ]]; then return; fi
    is_unapplied || unknown=true
    [[ $failure != 0 || $status =~ ^(429|502|503|504)$ ]] || break
    seconds=$(pause)
    if ((tries == 5 || seconds > 60)) || ! { $repeatable || is_unapplied; }; then break; fi
    sleep "$seconds"
  done
  expect 200 || if $unknown; then echo 'The update may have been applied.' >&2; else echo 'Nothing was changed.' >&2; fi
  exit 1
}

# Sets the quantity. A retry is safe if you are the only writer of the entry.
set_quantity() {
  update true --json "{\"quantity\": $quantity}"
  expect 200
}

# Adds to the quantity by compare and set: no other writer's update is lost. After an unknown outcome, a 412 would not tell
# whether the first attempt or another writer has changed the entry.
add() {
  local condition
  list
  tag=$(tr '{' '\n' <"$answer" |
    sed -En "s/^\"petId\":$pet,\"quantity\":([0-9]+),\"status\":\"([a-z]+)\".*/\"\1-\2\"/p")
  if [[ -z $tag ]]; then
    echo "not_found: No inventory entry exists for petId $pet." >&2
    exit 1
  fi
  # A 412 leaves the entry's current tag in $tag.
  while [[ $tag =~ \"([0-9]+)-[a-z]+\" ]]; do
    condition=${BASH_REMATCH[0]}
    update false --header "If-Match: $condition" \
      --json "{\"quantity\": $((BASH_REMATCH[1] ${quantity:0:1} 10#${quantity:1}))}"
    [[ $status == 412 ]] || return 0
  done
  expect 200
}

list --etag-save "$folder/etag"
cat "$answer"
echo
if [[ $quantity == [+-]* ]]; then add; else set_quantity; fi
cat "$answer"
echo

# A list that has not changed is a 304 without a body.
for _ in 1 2; do
  list --etag-compare "$folder/etag" --etag-save "$folder/newer"
  if [[ $status == 304 ]]; then
    echo unchanged
  else
    echo changed
    mv "$folder/newer" "$folder/etag"
  fi
done
