#!/bin/sh
# The two programs of the balancer in docker-compose.yml:
#   balancer.sh settings [check]   check RATE_LIMIT and the certificate, and hand them over to the balancer, or only check them
#   balancer.sh run                run HAProxy, and reload it after each hand-over, which interrupts no request
# So a change of these settings replaces no container, and settings with an error never reach HAProxy. The former runs as root,
# because the files may be readable by their owner alone.
set -eu
cd /run/balancer

settings() {
  fail() {
    echo "balancer-settings: $1; nothing was changed" >&2
    exit 1
  }
  case "$RATE_LIMIT" in
    *[!0-9]* | 0* | ????????*) fail "RATE_LIMIT must be a whole number from 1 to 9999999, not \"$RATE_LIMIT\"" ;;
  esac
  rm -rf new
  mkdir new
  cp -r /ops/balancer.sh /ops/haproxy.cfg /ops/errors new
  cd new
  {
    echo global
    echo '  setenv LISTEN *:3000'
    echo '  setenv SERVERS api:3000'
    if [ -n "$RATE_LIMIT" ]; then echo "  setenv RATE_LIMIT $RATE_LIMIT"; else echo '  unsetenv RATE_LIMIT'; fi
    if [ -n "$CERTIFICATE" ]; then
      port=:${PUBLISH_HTTPS##*:}
      echo '  setenv CERTIFICATE certificate.pem'
      echo '  setenv LISTEN_HTTPS *:3443'
      echo "  setenv PUBLIC_HTTPS_PORT '${port#:443}'"
    else
      echo '  unsetenv CERTIFICATE'
    fi
  } >settings.cfg
  if [ -n "$CERTIFICATE" ]; then cat /certificate.pem >certificate.pem || fail 'CERTIFICATE cannot be read'; fi
  if ! haproxy -c -f settings.cfg -f haproxy.cfg >../check.log 2>&1; then
    cat ../check.log >&2
    fail "HAProxy refuses the settings${CERTIFICATE:+. CERTIFICATE must be a PEM file with a certificate, its chain and its key}"
  fi
  if [ "${1:-}" = check ]; then return; fi
  # Independent of the umask with which the files were checked out.
  chmod -R u=rwX,go=rX .
  if [ -n "$CERTIFICATE" ]; then
    chmod 400 certificate.pem
    chown haproxy certificate.pem
  fi
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
    if [ "$version" != "$(cat version)" ]; then
      version=$(cat version)
      kill -USR2 "$haproxy"
    fi
  done
  wait "$haproxy"
}

case "${1:-}" in
  settings) settings "${2:-}" ;;
  run) run ;;
  *)
    sed -n '2,4s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
