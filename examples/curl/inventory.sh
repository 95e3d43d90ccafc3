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

# Leaves the body in $answer, the ETag in $tag and the status in $status; exits on a status that the first argument does
# not list. The key is passed through a pipe, because anyone on the machine can read a command line.
call() {
  local expected=$1 result type
  shift
  : >"$answer"
  if ! result=$(curl --config - --silent --show-error --max-time "$timeout" --output "$answer" \
    --write-out '%{content_type}\n%header{etag}\n%{http_code}' "$@" \
    <<<"header = \"Authorization: Bearer $INVENTORY_KEY\""); then
    [[ $* != *' PATCH '* ]] || echo 'The update may have been applied.' >&2
    exit 1
  fi
  { read -r type && read -r tag && read -r status; } <<<"$result"
  if [[ $status != 304 && $type != application/json* ]]; then
    echo "The response ($status, ${type:-no content type}) is not from the inventory service" >&2
    exit 1
  elif [[ ! " $expected " == *" $status "* ]]; then
    cat "$answer" >&2
    echo >&2
    exit 1
  fi
}

# Retries after a timeout, a lost connection or a temporary error, and waits for as long as Retry-After says, in seconds
# or as a date. Without --fail, --retry-all-errors does not retry permanent errors, such as a 404.
retry=(--retry 4 --retry-all-errors --retry-max-time 60)

# Sets the quantity. A retry is safe if you are the only writer of the entry.
update() {
  call 200 "$base/inventory/$pet" --request PATCH --json "{\"quantity\": $quantity}" "${retry[@]}"
}

# Adds to the quantity by compare and set: no other writer's update is lost. The update is retried only if nothing was
# changed: a tag says what an entry is, not who made it so, and a retry could not tell its own first attempt from another writer.
add() {
  local condition retries=4
  call 200 "$base/inventory" --compressed "${retry[@]}"
  tag=$(tr '{' '\n' <"$answer" |
    sed -En "s/^\"petId\":$pet,\"quantity\":([0-9]+),\"status\":\"([a-z]+)\".*/\"\1-\2\"/p")
  if [[ -z $tag ]]; then
    echo "not_found: No inventory entry exists for petId $pet." >&2
    exit 1
  fi
  # A 412 leaves the entry's current tag in $tag.
  while [[ $tag =~ \"([0-9]+)-[a-z]+\" ]]; do
    condition=${BASH_REMATCH[0]}
    call '200 412 429 503' "$base/inventory/$pet" --request PATCH --header "If-Match: $condition" \
      --json "{\"quantity\": $((BASH_REMATCH[1] ${quantity:0:1} 10#${quantity:1}))}"
    [[ $status != 200 ]] || return 0
    if [[ $status != 412 ]] && grep -Eq '"code":"(nothing_changed|too_many_requests)"' "$answer" && ((retries-- > 0)); then
      tag=$condition
      sleep $((1 + RANDOM % 2))
    fi
  done
  cat "$answer" >&2
  exit 1
}

call 200 "$base/inventory" --compressed --etag-save "$folder/etag" "${retry[@]}"
cat "$answer"
echo
if [[ $quantity == [+-]* ]]; then add; else update; fi
cat "$answer"
echo

# A list that has not changed is a 304 without a body.
for _ in 1 2; do
  call '200 304' "$base/inventory" --compressed --etag-compare "$folder/etag" --etag-save "$folder/newer" "${retry[@]}"
  if [[ $status == 304 ]]; then
    echo unchanged
  else
    echo changed
    mv "$folder/newer" "$folder/etag"
  fi
done
