#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Many connections on one host: all come up, carry, and leave no object of the kernel behind.
# usage: 60_scale.sh BUILD
# limit: 800 s
set -uo pipefail
build=$1
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=tests/tap.sh
. "$here/../../tap.sh"
scale=$build/bench/bench_verbs_scale

over_both_rails() {
    timeout 300 "$scale" rxe0,rxe2 rxe1,rxe3 100
}

# 1400 messages wait for their receives, more than there are buffers for.
over_one_rail() {
    timeout 300 "$scale" rxe0 rxe1 100
}

few_descriptors() {
    local said
    said=$(ulimit -n 128 && "$scale" rxe0 rxe1 100 2>&1) && return 1
    echo "$said"
    grep -q 'raise it with `ulimit -n 656`' <<<"$said"
}

tap_case a_hundred_connections_over_two_rails_come_up_and_leave_nothing over_both_rails
tap_case frames_that_wait_for_their_receives_keep_no_other_out over_one_rail
tap_case too_few_descriptors_are_named_with_the_number_needed few_descriptors
tap_done
