#!/bin/bash
# Includes run one way (docs/architecture.md): each folder may include only what its row allows.
# Also: only core/verbs includes <infiniband/…> or <rdma/…>, and core knows no database.
set -u
cd "$SLUICE_ROOT" || exit 1
bad=0
allow() { # FOLDER ALLOWED…
  local wrong
  wrong=$(grep -rn '#include "' "$1" 2>/dev/null | awk -v list="$*" '
    BEGIN { n = split(list, a, " "); for (i = 1; i <= n; i++) ok[a[i]] = 1 }
    { folder = $0; sub(/.*#include "/, "", folder); sub(/\/[^\/]*".*/, "", folder) }
    !(folder in ok)')
  [ -z "$wrong" ] || { sed 's/^/not allowed: /' <<<"$wrong"; bad=1; }
}
allow core/base
allow core/wire core/base
allow core/object core/base core/wire
allow core/transport core/base core/wire
allow core/verbs core/base core/wire core/transport
allow core/store core/base core/wire
allow core/repo core/base core/wire core/object core/store
allow core/session core/base core/wire core/object core/transport
allow core/plugin core/base core/wire core/transport
allow core/client core/base core/wire core/object core/transport core/session
allow core/target core/base core/wire core/object core/transport core/store core/repo core/session
allow core/cli core/base core/wire core/object core/transport core/store core/repo core/session \
  core/plugin core/client core/target
for engine in postgres mysql; do
  allow $engine $engine/archive_module core/base core/wire core/object core/repo core/client core/plugin core/cli core/session core/transport
done
if grep -rnE '#include <(infiniband|rdma)/' core postgres mysql | grep -v '^core/verbs/'; then
  echo "only core/verbs may include verbs headers"
  bad=1
fi
if grep -rniE '#include <(libpq|mysql|mariadb|postgres)' core; then
  echo "core knows no database"
  bad=1
fi
[ $bad = 0 ] && echo "includes run one way"
exit $bad
