#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Ranks over RDMA, each with a device of its own, between two of which the link is slow: live diagnosis names that link, and nobody else.
# usage: 62_inject_links.sh BUILD    inject_runs, inject_seed, inject_from: other draws, of slow senders and receivers too
# limit: 900 s
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
build=$1
# shellcheck source=tests/tap.sh
. "$here/../../tap.sh"

[[ -x $build/tests/diagnosis/inject_ranks ]] || tap_skip_all "diagnosis is not built here"
command -v python3 >/dev/null || tap_skip_all "python3 is not in the guest"
exec python3 -B "$here/../../diagnosis/inject.py" --ctl "$build/tools/ctl/sluicectl" --ranks "$build/tests/diagnosis/inject_ranks" --places rdma \
    --class slow_sender,slow_receiver,slow_link --seed "${inject_seed:-5}" --from "${inject_from:-5}" --runs "${inject_runs:-1}" --most 8 --tap
