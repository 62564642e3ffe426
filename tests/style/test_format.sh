#!/bin/bash
# Every C file is formatted as .clang-format says, and none is above 800 lines.
set -u
cd "$SLUICE_ROOT" || exit 1
mapfile -t files < <(git ls-files '*.c' '*.h')
[ ${#files[@]} -gt 0 ] || { echo "no files"; exit 1; }
bad=0
clang-format --dry-run -Werror "${files[@]}" 2>&1 | grep -E 'error:' | cut -d: -f1 | sort | uniq -c | sed 's/$/: not formatted/' | tee /dev/stderr | grep -q . && bad=1
for f in "${files[@]}"; do
  lines=$(wc -l <"$f")
  [ "$lines" -le 800 ] || { echo "$f: $lines lines: a design to redo"; bad=1; }
done
[ $bad = 0 ] && echo "${#files[@]} files are in order"
exit $bad
