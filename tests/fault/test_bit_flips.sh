#!/bin/bash
# timeout: 600
# One flipped bit at a hundred random places of a repository with a backup and its WAL: verify finds
# each and names the object; restore never writes wrong bytes: it fails and names the object, or the
# bit was in something that it does not read. Then truncated, longer, swapped, foreign and empty files,
# and the end of one object on the bytes of another.
set -euo pipefail
. "$SLUICE_ROOT/tests/support/lib.sh"
flips=${SLUICE_BIT_FLIPS:-100}
. "$SLUICE_ROOT/tests/support/cluster.sh"
initdb_options=--wal-segsize=1 # small is quick, and every kind of byte is as likely
new_cluster c1
echo "compress-type = none" >>"$work/c1.conf" # segments of one size, for what is swapped below
c1_psql -c "create table t as select i, md5(i::text) from generate_series(1, 5000) i"
c1_sluice stanza-create >/dev/null
c1_sluice backup >/dev/null
stop_cluster c1
repo=$work/repo
mapfile -t files < <(find "$repo" -type f | sort)
say "${#files[@]} files, $(du -sh "$repo" | cut -f1)"

# restored into memory, where there is some: the disk is not what is tested
place=$(mktemp -d "$([ -w /dev/shm ] && echo /dev/shm || echo "$work")/sluice-flips-XXXXXX")
at_exit+=("rm -rf '$place'")
[ -z "$pg_user" ] || chown "$pg_user:" "$place"
restore_into() { # DIR: as c1's user
  rm -rf "$1"; c1_sluice restore --datadir "$1"
}
restore_into "$place/good" >/dev/null 2>&1 || { restore_into "$place/good"; die "restore of the whole repository"; }
reference=$(cd "$place/good" && find . -type f ! -name postgresql.auto.conf -print0 | sort -z | xargs -0 sha256sum | sha256sum)

seed=${SLUICE_SEED:-$RANDOM}
say "seed $seed"
RANDOM=$seed
found=0 refused=0 unread=0
for i in $(seq "$flips"); do
  file=${files[$((RANDOM % ${#files[@]}))]}
  size=$(stat -c %s "$file")
  offset=$(((RANDOM * 32768 * 32768 + RANDOM * 32768 + RANDOM) % size)) bit=$((RANDOM % 8))
  flip() { python3 -c '
import sys
path, offset, bit = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with open(path, "r+b") as f:
    f.seek(offset); b = f.read(1)[0]; f.seek(offset); f.write(bytes([b ^ 1 << bit]))' "$file" "$offset" "$bit"; }
  flip
  name=${file#"$repo"/}
  status=0
  c1_sluice verify >"$work/verify.log" 2>&1 || status=$?
  [ $status != 0 ] || die "flip $i: verify misses bit $bit of byte $offset in $name"
  grep -qF "${name#main/}" "$work/verify.log" || { cat "$work/verify.log"; die "flip $i: verify does not name $name"; }
  found=$((found + 1))
  if [ $((i % 4)) = 0 ]; then
    status=0
    restore_into "$place/try" >"$work/restore.log" 2>&1 || status=$?
    if [ $status = 0 ]; then
      got=$(cd "$place/try" && find . -type f ! -name postgresql.auto.conf -print0 | sort -z | xargs -0 sha256sum | sha256sum)
      [ "$got" = "$reference" ] || die "flip $i: restore wrote wrong bytes from a damaged $name"
      unread=$((unread + 1))
    else
      grep -qF "$(basename "$(dirname "$name")")/$(basename "$name")" "$work/restore.log" || grep -qF "$name" "$work/restore.log" ||
        { cat "$work/restore.log"; die "flip $i: restore does not name $name"; }
      refused=$((refused + 1))
    fi
  fi
  flip
done
say "$found of $flips flips found and named by verify; of $((refused + unread)) restores $refused refused and named it, $unread did not read it and were right"

damage() { # WHAT FILE: after it was done to the file: verify must name it; then put back
  local name=${2#"$repo/main/"}
  if c1_sluice verify >"$work/verify.log" 2>&1; then die "verify misses: $1 $name"; fi
  grep -qF "$name" "$work/verify.log" || { cat "$work/verify.log"; die "verify does not name: $1 $name"; }
  cp -p "$work/kept" "$2"
}
count=0
wal=$(find "$repo" -path '*/wal/*' -type f -size +1M | head -n 1)
other_wal=$(find "$repo" -path '*/wal/*' -type f -size +1M | sed -n 2p)
for file in "$(find "$repo" -name 'pack-*' | head -n 1)" "$(find "$repo" -name manifest)" "$wal" "$repo/main/stanza.json"; do
  cp -p "$file" "$work/kept"
  size=$(stat -c %s "$file")
  for cut in 0 1 4095 $((size / 2)) $((size - 4096)) $((size - 1)); do truncate -s $cut "$file"; damage "truncated to $cut" "$file"; count=$((count + 1)); done
  printf x >>"$file"; damage "a byte longer" "$file"
  head -c 4096 /dev/zero >>"$file"; damage "a page longer" "$file"
  count=$((count + 2))
done
cp -p "$wal" "$work/kept"; cp "$other_wal" "$wal"; damage "another segment in its place" "$wal"
cp -p "$wal" "$work/kept"; echo junk >"$wal"; damage "junk" "$wal"
count=$((count + 2))
# two swapped: both are named
cp -p "$wal" "$work/kept"; cp -p "$other_wal" "$work/kept-2"
cp "$work/kept-2" "$wal"; cp "$work/kept" "$other_wal"
c1_sluice verify >"$work/verify.log" 2>&1 && die "verify misses two swapped files"
for file in "$wal" "$other_wal"; do grep -qF "${file#"$repo/main/"}" "$work/verify.log" || { cat "$work/verify.log"; die "verify does not name a swapped ${file#"$repo"/}"; }; done
cp -p "$work/kept" "$wal"; cp -p "$work/kept-2" "$other_wal"
# the end (footer and trailer) of one on the content of another of the same length, and the other way round
tail_of() { # FILE: where its footer begins, from the last 4096 bytes (docs/repository.md)
  local size; size=$(stat -c %s "$1"); echo $((size - 8192))
}
cp -p "$wal" "$work/kept"
at=$(tail_of "$wal")
[ "$(stat -c %s "$wal")" = "$(stat -c %s "$other_wal")" ] || die "two segments of different size"
dd if="$other_wal" of="$wal" bs=4096 skip=$((at / 4096)) seek=$((at / 4096)) conv=notrunc status=none; damage "another's footer and trailer" "$wal"
cp -p "$wal" "$work/kept"
dd if="$other_wal" of="$wal" bs=4096 skip=$((at / 4096)) seek=$((at / 4096)) count=1 conv=notrunc status=none; damage "another's footer" "$wal"
cp -p "$wal" "$work/kept"
dd if="$other_wal" of="$wal" bs=4096 count=$((at / 4096)) conv=notrunc status=none; damage "another's content" "$wal"
count=$((count + 4))
# whole objects from elsewhere: another stanza of this repository, another repository
c1_sluice --stanza=second --pg-path="$c1_data" stanza-create --no-online >/dev/null
second=$(as_pg find "$repo/second" -type f | head -n 1)
[ -n "$second" ] || die "no second stanza"
cp -p "$repo/main/stanza.json" "$work/kept"; cp "$second" "$repo/main/stanza.json"; damage "another stanza's" "$repo/main/stanza.json"
sed "s|repo-path = .*|repo-path = $work/repo2|" "$work/c1.conf" >"$work/c2.conf"
mkdir -p "$work/repo2"; [ -z "$pg_user" ] || chown "$pg_user:" "$work/repo2"
as_pg sluice --config="$work/c2.conf" stanza-create --no-online >/dev/null
for file in "$repo/main/stanza.json" "$wal"; do
  name=${file#"$repo"/}
  if [ ! -e "$work/repo2/$name" ]; then
    c1_sluice archive-get "$(basename "$wal")" "$place/$(basename "$wal")" >/dev/null
    as_pg sluice --config="$work/c2.conf" archive-push "$place/$(basename "$wal")" >/dev/null
  fi
  cp -p "$file" "$work/kept"; cp "$work/repo2/$name" "$file"; damage "the same from another repository" "$file"
  count=$((count + 1))
done
count=$((count + 1))
say "$count truncated, longer, swapped, glued and foreign files: each named"
c1_sluice verify >/dev/null || die "the repository was not put back"
