#!/usr/bin/env bash
# Sets the stock of one pet and follows the list. Needs curl 7.82 or newer.
#
#   INVENTORY_URL=https://…/v1 INVENTORY_KEY=… ./inventory.sh PET_ID QUANTITY
set -euo pipefail

base=${INVENTORY_URL:-http://127.0.0.1:3000/v1}
: "${INVENTORY_KEY:?is the API key}"
pet=$1
quantity=$2
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
answer=$folder/answer

# Leaves the body in $answer and prints the status. --retry tries again after a time-out or a 503, as long after it as
# its Retry-After says; that is safe for updates, too: they are absolute values. The key comes by a pipe, because
# anyone on the machine can read a command line.
call() {
  curl --config - --silent --show-error --fail-with-body --max-time 10 --retry 4 --retry-connrefused \
    --output "$answer" --write-out '%{http_code}' "$@" <<<"header = \"Authorization: Bearer $INVENTORY_KEY\""
}

call "$base/inventory" --compressed --etag-save "$folder/etag" >"$folder/status" || { cat "$answer" >&2; exit 1; }
cat "$answer"
echo
call "$base/inventory/$pet" --request PATCH --json "{\"quantity\": $quantity}" >"$folder/status" ||
  { cat "$answer" >&2; exit 1; }
cat "$answer"
echo

# A list that has not changed is a 304 without a body.
for _ in 1 2; do
  status=$(call "$base/inventory" --compressed --etag-compare "$folder/etag" --etag-save "$folder/newer")
  if [ "$status" = 304 ]; then
    echo unchanged
  else
    echo changed
    mv "$folder/newer" "$folder/etag"
  fi
done
