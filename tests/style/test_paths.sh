#!/bin/bash
# What documents name exists: paths of this tree in README.md, docs, man pages' texts and comments,
# `page.md` beside it, the targets of links, and the commands that README types.
set -u
cd "$SLUICE_ROOT" || exit 1
bad=0
missing() { echo "$1: names $2, which is not there"; bad=1; }

# A path may be a file or folder, or a program without its suffix (tests/unit/x/test_y for test_y.c).
exists() {
  [ -e "$1" ] || compgen -G "$1.[ch]" >/dev/null || compgen -G "$1.sh" >/dev/null
}

pages=(README.md docs/*.md)
for page in "${pages[@]}"; do
  # build/… is made, not kept
  while read -r path; do
    exists "${path%/}" || missing "$page" "$path"
  done < <(grep -oE '(^|[^[:alnum:]_./<-])(core|postgres|mysql|tests|docs|dist|cmake)(/[[:alnum:]_.-]+)+' "$page" |
    sed -E 's/^[^[:alnum:]]//; s/\.$//' | sort -u)
  while read -r name; do
    [ -e "docs/$name" ] || [ -e "$name" ] || missing "$page" "$name"
  done < <(grep -oE '`[[:alnum:]_-]+\.md`' "$page" | tr -d '`' | sort -u)
  while read -r link; do
    [ -e "$(dirname "$page")/$link" ] || missing "$page" "the link $link"
  done < <(grep -oE '\]\([^)#]+' "$page" | sed 's/^](//' | grep -vE '^(https?|mailto):' | sort -u)
done

# Comments and messages that send the reader to a document or a test.
while IFS=: read -r file path; do
  exists "$path" || missing "$file" "$path"
done < <(git ls-files -z -- '*.c' '*.h' '*.sh' '*.txt' '*.cmake' quickstart tests/run |
  xargs -0 grep -oHE '\b(docs|tests)/[[:alnum:]_/.-]+\.(md|c|h|sh|py)\b' | sort -u)

# The commands that README types, and every command of the command itself in its man pages' table.
while read -r command; do
  grep -rqE "(\.name = |\{)\"$command\"" core/cli postgres mysql || missing README.md "sluice $command"
done < <(grep -oE '\bsluice [a-z][a-z-]+' README.md | sed 's/^sluice //' | grep -E -- '^(archive|stanza|check|backup|info|restore|verify|cert|expire|help)' | sort -u)

# Who types README's line has the packages that quickstart installs to build.
while read -r package; do
  grep -qE "(^|[ ])$package( |\$)" <(sed -n '/apt-get install/,/[^\\]$/p' README.md) ||
    missing tests/packages "$package, which README.md does not install:"
done < <(sed -n '/^\[build\]/,/^\[run\]/{/^[a-z]/p}' tests/packages)

[ $bad = 0 ] && echo "what documents name exists"
exit $bad
