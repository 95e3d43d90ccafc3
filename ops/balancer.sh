#!/bin/sh
# The two programs of the balancer in docker-compose.yml:
#   balancer.sh settings [check]   check the settings and the certificate, and hand them over to the balancer, or only check them
#   balancer.sh run                run HAProxy, and reload it after each hand-over, which interrupts no request
# So a change of these settings replaces no container, and settings with an error never reach HAProxy.
set -eu
cd /run/balancer

fail() {
  echo "balancer-settings: $1; nothing was changed" >&2
  exit 1
}

# Prints until when a certificate is valid, in Unix time: its second text of 12 or 14 digits and a Z. HAProxy does not check it, and its
# image may have no OpenSSL.
expiry_of() {
  # shellcheck disable=SC2046
  set -- $(sed '/-BEGIN CERTIFICATE-/,/-END CERTIFICATE-/!d;/-END/q' "$1" | sed '/-/d;s/\r//' | base64 -d | tr -c '0-9Z' '\n' |
    sed -nE 's/^([0-4][0-9]{11})Z.*/20\1/p;s/^([5-9][0-9]{11})Z.*/19\1/p;s/^([0-9]{14})Z.*/\1/p')
  now=$(date -u +%Y%m%d%H%M%S)
  [ "$1" -le "$now" ] || fail "the certificate is not valid before $1 (UTC)"
  [ "$2" -gt "$now" ] || fail "the certificate has expired, at $2 (UTC)"
  date -u -d "$(echo "$2" | sed -E 's/(....)(..)(..)(..)(..)/\1-\2-\3 \4:\5:/')" +%s
}

# HAProxy keeps its environment when it is reloaded.
put() { if [ -n "$2" ]; then echo "  setenv $1 \"$2\""; else echo "  unsetenv $1"; fi; }

settings() {
  echo "$RATE_LIMIT" | grep -qxE '([1-9][0-9]{0,6})?' || fail "RATE_LIMIT must be a whole number from 1 to 9999999, not \"$RATE_LIMIT\""
  rm -rf new
  mkdir new
  cp -r /ops/balancer.sh /ops/haproxy.cfg /ops/errors new
  cd new
  port=:${PUBLISH_HTTPS##*:}
  {
    echo global
    put RATE_LIMIT "$RATE_LIMIT"
    put PROXIES "$(echo "$PROXIES" | tr , ' ')"
    put CERTIFICATE "${CERTIFICATE:+certificate.pem}"
    put PUBLIC_HTTPS_PORT "${port#:443}"
  } >settings.cfg
  if [ -n "$CERTIFICATE" ]; then
    cat /certificate.pem >certificate.pem || fail 'CERTIFICATE cannot be read'
    # In a terminal, HAProxy would ask for the pass phrase.
    ! grep -q ENCRYPTED certificate.pem || fail 'the key in CERTIFICATE is encrypted; decrypt it with "openssl pkey"'
  fi
  output=$(METRICS=127.0.0.1:8405 haproxy -c -f settings.cfg -f haproxy.cfg 2>&1) || fail "$output
HAProxy refuses the settings. PROXIES are addresses or networks, CERTIFICATE is a PEM file with a certificate, its chain and its key"
  # Independent of the umask with which the files were checked out.
  chmod -R u=rwX,go=rX .
  if [ -n "$CERTIFICATE" ]; then
    expiry=$(expiry_of certificate.pem)
    chmod 400 certificate.pem
    chown haproxy certificate.pem
  fi
  put CERTIFICATE_EXPIRY "${expiry:-}" >>settings.cfg
  if [ "${1:-}" = check ]; then return; fi
  cd ..
  rm -rf current
  mv new current
  find current -type f -exec cksum {} + | sort >version.new
  mv version.new version
}

run() {
  version=$(cat version)
  haproxy -W -db -f current/settings.cfg -f current/haproxy.cfg &
  haproxy=$!
  trap 'kill -USR1 "$haproxy"' TERM INT USR1
  while kill -0 "$haproxy" 2>/dev/null; do
    # In the background, so that a signal does not have to wait for it.
    sleep 1 &
    wait $! || true
    [ "$version" = "$(cat version)" ] && continue
    version=$(cat version)
    kill -USR2 "$haproxy"
  done
  wait "$haproxy"
}

"$@"
