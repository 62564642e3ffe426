# shellcheck shell=bash
# packages_need SECTION…: installs the Debian packages of these sections of tests/packages that are
# missing. Quiet when nothing is; says what it installs; fails with the command to type when it may
# not install.
packages_need() {
  local list missing=() p section
  list=$(for section in "$@"; do
    sed -n "/^\[$section\]/,/^\[/{/^[a-z]/p}" "$(dirname "${BASH_SOURCE[0]}")/../packages"
  done)
  for p in $list; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "missing packages; as root: apt-get install --no-install-recommends ${missing[*]}" >&2
      return 1
    fi
    as_root=(sudo)
  fi
  echo "installing ${#missing[@]} packages: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  local log
  log=$(mktemp)
  if ! "${as_root[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}" >"$log" 2>&1; then
    # the lists may be old or absent: fetch them, once
    if ! { "${as_root[@]}" apt-get update -q && "${as_root[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
      tail -n 20 "$log" >&2
      rm -f "$log"
      echo "could not install: ${missing[*]}" >&2
      return 1
    fi
  fi
  rm -f "$log"
}
