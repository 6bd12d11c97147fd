#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Ranks over RDMA of which one is stopped, killed, throttled, slow, asleep, or calls something else: live diagnosis names it, and nobody else.
# usage: 64_inject.sh BUILD
# limit: 900 s
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
build=$1
# shellcheck source=tests/tap.sh
. "$here/../../tap.sh"

[[ -x $build/tests/diagnosis/inject_ranks ]] || tap_skip_all "diagnosis is not built here"
command -v python3 >/dev/null || tap_skip_all "python3 is not in the guest"
exec python3 -B "$here/../../diagnosis/inject.py" --ctl "$build/tools/ctl/sluicectl" --ranks "$build/tests/diagnosis/inject_ranks" --places rdma \
    --class none,stop,kill,sleep,other,throttle,slow_gpu --runs "${inject_runs:-12}" --seed "${inject_seed:-1}" --most 8 --tap
