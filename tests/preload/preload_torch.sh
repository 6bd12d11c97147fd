#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Unmodified PyTorch scripts, started by a real torchrun, as they are and under libsluice-preload.so.
# usage: preload_torch.sh libsluice-preload.so
set -uo pipefail
shim=$1
here=$(dirname "$0")
# shellcheck source=tests/torchrun.sh
. "$here/../torchrun.sh"

train() { in_four 150 "$@"; }

# four_took OUTPUT: each rank's line at exit says that all of its calls were taken.
four_took() {
    local rank
    for rank in 0 1 2 3; do
        grep -qE "^sluice preload: rank $rank: took [1-9][0-9]+ calls.*; passed on 0\$" <<<"$1" ||
            { echo "rank $rank did not take all calls"; return 1; }
    done
}

same_training() {
    local plain shimmed
    plain=$(train "$here/train.py" --epochs 1 "$@") || { echo "$plain"; return 1; }
    shimmed=$(LD_PRELOAD=$shim SLUICE_PRELOAD=report train "$here/train.py" --epochs 1 "$@") ||
        { echo "$shimmed"; return 1; }
    echo "$shimmed"
    four_took "$shimmed" || return 1
    grep -q 'the same on all 4 ranks' <<<"$shimmed" || return 1
    diff <(grep -E '^(epoch|parameters)' <<<"$plain") <(grep -E '^(epoch|parameters)' <<<"$shimmed")
}

every_call() {
    local output
    output=$(LD_PRELOAD=$shim SLUICE_PRELOAD=report train "$here/torch_calls.py") ||
        { echo "$output"; return 1; }
    echo "$output"
    four_took "$output" && grep -q 'all as expected' <<<"$output"
}

# The interpreter of torchrun's first line is that of its PyTorch.
read -r _ python <<<"$(head -n 1 "$(command -v "$torchrun")" | sed 's/^#!/x /')"
[[ $python == *python* ]] || python=python3
learns() { $python -c 'import sklearn' 2>/dev/null; }
if learns; then
    # With processes that load data: what a fork after the first call must not disturb is looked at, too.
    tap_case ddp_of_four_processes_trains_to_the_same_bits same_training --workers 1
else
    tap_skip ddp_of_four_processes_trains_to_the_same_bits "no scikit-learn for $python (package python3-sklearn, or by pip)"
fi
tap_case every_collective_of_torch_distributed_many_at_once every_call
tap_done
