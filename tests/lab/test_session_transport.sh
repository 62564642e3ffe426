#!/bin/bash
# timeout: 900
# transport = auto takes TCP and says why, transport = rdma fails and says why, where one side has no RDMA
# device, or loses it; where full packets do not get through; where too little memory may be locked.
set -euo pipefail
. "$SLUICE_ROOT/tests/lab/session.sh"
session_pair rxe 800 ${SESSION_CASES:-client_without_rdma target_without_rdma device_deleted memlock mtu}
