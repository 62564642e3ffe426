#!/bin/bash
# A real database server of another Debian release in a folder, runnable in place by any user, for
# tests against versions that this host's packages do not have.
#
#   tests/support/get_server.sh pg15|pg17|pg18|mariadb118|mysql97|pgbackrest
#
# Prints the folder: programs in bin/, PostgreSQL's server headers in include/, a server's version in
# the first line of VERSION. It is made once, in ${SLUICE_CACHE} (root: /var/cache/sluice-tests, else
# ~/.cache/sluice-tests). pg15 is this host's own package if it is installed. The host's packages,
# apt lists and dpkg status are neither changed nor consulted; a half-made folder never appears under
# its name. Do not move it: paths are in the programs.
#
# Environment: SLUICE_SUITE another release, SLUICE_MIRROR another archive (default: the host's).
# Needs: amd64, apt, dpkg-deb, flock, Debian's keyring. A failure says why on standard error.
set -euo pipefail
die() { echo "get_server: $*" >&2; exit 1; }
[ $# = 1 ] || die "usage: get_server.sh pg15|pg17|pg18|mariadb118|mysql97|pgbackrest"
kind=$1
if [ "$kind" = pg15 ]; then
  [ -x /usr/lib/postgresql/15/bin/postgres ] || die "postgresql-15 is not installed"
  echo /usr/lib/postgresql/15
  exit 0
fi
if [ "$(id -u)" = 0 ]; then cache=/var/cache/sluice-tests; else cache=${XDG_CACHE_HOME:-$HOME/.cache}/sluice-tests; fi
dir=$(realpath -m -- "${SLUICE_CACHE:-$cache}/$kind")
case $dir in *[[:space:]:]*) die "no spaces or colons in $dir" ;; esac
extra=()                                  # taken without their dependencies
case $kind in
  pg17) suite=trixie v=17 ;;
  pg18) suite=testing v=18 ;;
  mariadb118) suite=trixie server=mariadbd bin=usr/bin mods=usr/lib/mysql/plugin
    pkgs=(mariadb-server-core mariadb-client-core mariadb-client mariadb-backup) extra=(mariadb-server) ;; # plugins
  mysql97) suite=sid server=mysqld bin=usr/bin mods=usr/lib/mysql/plugin
    pkgs=(mysql-server-core mysql-client-core mysql-client) ;;
  pgbackrest) suite=trixie server=pgbackrest bin=usr/bin mods=usr/bin pkgs=(pgbackrest) ;; # for tests/bench
  *) die "unknown server: $kind" ;;
esac
if [ -n "${v:-}" ]; then
  server=postgres bin=usr/lib/postgresql/$v/bin mods=usr/lib/postgresql/$v/lib
  pkgs=("postgresql-$v" "postgresql-client-$v") extra=("postgresql-server-dev-$v" libpq-dev)
fi
suite=${SLUICE_SUITE:-$suite}

mkdir -p "$(dirname "$dir")" || die "cannot make $(dirname "$dir"): set SLUICE_CACHE"
exec 9> "$dir.lock"; flock -w 1200 9 || die "another one has been fetching $kind for 20 minutes"
ready() { [ "$(head -n 1 "$dir/.get_server" 2>/dev/null)" = "$kind $dir" ]; }
if ready && "$dir/bin/$server" --version >/dev/null; then echo "$dir"; exit 0; fi
[ ! -e "$dir" ] || grep -q "^$kind " "$dir/.get_server" 2>/dev/null || die "$dir exists and is not a $kind made by this script"

tmp=$(mktemp -d); part=$dir.part
trap 'rm -rf "$tmp" "$part"' EXIT
rm -rf "$part"; mkdir -p "$part" "$tmp"/{lists/partial,cache/archives/partial,debs}

# 1. A private apt: own source, lists, cache, and an empty dpkg status, so that every dependency is listed.
mirror=${SLUICE_MIRROR:-$(awk '$1 == "URIs:" || $1 == "deb" {for (i = 2; i <= NF; i++) if ($i ~ /:\/\//) {print $i; exit}}' \
  /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null || true)}
[ -n "$mirror" ] || die "no Debian mirror configured; set SLUICE_MIRROR"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" > "$tmp/list"
: > "$tmp/status"
opt=(-qq -o Dir::Etc::SourceList="$tmp/list" -o Dir::Etc::SourceParts=/dev/null
  -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null
  -o Dir::State::Lists="$tmp/lists" -o Dir::State::status="$tmp/status"
  -o Dir::State::extended_states="$tmp/ext" -o Dir::Cache="$tmp/cache" -o Dir::Log="$tmp"
  -o Dir::Cache::pkgcache=p.bin -o Dir::Cache::srcpkgcache=s.bin -o Dir::Cache::archives=archives
  -o APT::Install-Recommends=false -o APT::Sandbox::User=root -o Debug::NoLocking=1
  -o Acquire::Languages=none -o Acquire::PDiffs=false -o Acquire::Retries=3)
apt-get "${opt[@]}" -o APT::Update::Error-Mode=any update || die "cannot read $suite from the mirror"

# 2. The server and the libraries it links; no perl, LLVM, init system, users or configuration.
apt-get "${opt[@]}" -s install "${pkgs[@]}" > "$tmp/sim" || die "dependencies of ${pkgs[*]} cannot be met in $suite"
libs=$(awk '/^Inst/ {print $2}' "$tmp/sim" | grep -E '^(lib|zlib1g$)' |
  grep -Ev '^lib(llvm|z3|perl|db5|gdbm|semanage|sepol|pam-|systemd-shared|debconf|proc2|c-|.*-(perl|common|modules|modules-db|bin)$)')
# shellcheck disable=SC2086
(cd "$tmp/debs" && apt-get "${opt[@]}" download $libs "${pkgs[@]}" "${extra[@]}" patchelf > /dev/null) ||
  die "download failed"
for deb in "$tmp"/debs/*.deb; do
  case $deb in */patchelf_*) dpkg-deb -x "$deb" "$tmp/pe" ;; *) dpkg-deb -x "$deb" "$part" ;; esac
done
rm -rf "${part:?}"/{etc,var} "$part"/usr/share/{doc,man,locale,bug,lintian,perl5} "$part"/usr/lib/x86_64-linux-gnu/gconv \
  "$part/$mods"/{bitcode,llvmjit*,auth_pam*}   # llvmjit.so without LLVM would fail queries; absent, JIT is off

# 3. Refuse a folder that would silently borrow a host library (in sid, names change).
lib=usr/lib/x86_64-linux-gnu ld=ld-linux-x86-64.so.2
[ -e "$part/usr/sbin/$server" ] && ln -sf "../sbin/$server" "$part/usr/bin/$server"
for f in "$part/$bin"/* "$part"/usr/sbin/*; do
  [ -f "$f" ] && [ ! -L "$f" ] && [ "$(head -c 4 "$f" | tr -d '\0')" = $'\177ELF' ] && echo "$f" >> "$tmp/programs"
done
{ cat "$tmp/programs"; find "$part/$mods" -name '*.so'; } | while read -r f; do
  "$part/$lib/$ld" --library-path "$part/$lib" --list "$f" 2>&1 || true
done | awk -v p="$part/" '/not found/ || (/=> \// && index($3, p) != 1) {print $1, $2, $3}' | sort -u > "$tmp/bad"
[ ! -s "$tmp/bad" ] || { cat "$tmp/bad" >&2; die "libraries missing from the chosen packages of $suite"; }

# 4. Make the programs, and only them, use the folder's loader and libraries; what they start stays a host program.
while read -r f; do
  "$part/$lib/$ld" --library-path "$part/$lib" "$tmp/pe/usr/bin/patchelf" \
    --set-interpreter "$dir/$lib/$ld" --force-rpath --set-rpath "$dir/$lib" "$f"
done < "$tmp/programs"
ln -s "$bin" "$part/bin"
[ -z "${v:-}" ] || ln -s "usr/include/postgresql/$v/server" "$part/include"

{ echo "$kind $dir"; (cd "$tmp/debs" && ls); } >"$part/.get_server"
chmod 755 "$part"; rm -rf "$dir"; mv "$part" "$dir"
"$dir/bin/$server" --version >"$dir/VERSION" || die "$dir/bin/$server does not run"
echo "$dir"
