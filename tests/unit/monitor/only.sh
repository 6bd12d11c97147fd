# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# sources_off SLUICED KEY...: lines of [sources] that switch off all sources but those: on a machine where other tests
# run, their ranks, links and log lines are nobody's business.
sources_off() {
    "$1" --print-config | awk -v keep=" ${*:2} " '
        /^\[/ { inside = $1 == "[sources]" }
        inside && /^# on; off; auto/ { next_is_key = 1; next }
        next_is_key { sub(/^#/, ""); if (!index(keep, " " $1 " ")) print $1 " = off"; next_is_key = 0 }'
}
