#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The driver passes a plugin that behaves, and catches every mistake that can be planted in it.
# usage: nccl_faults.sh nccl_driver libnccl-net-toy.so toy.h
set -uo pipefail
driver=$1 toy=$2 list=$3
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../tap.sh"

# mistake | the case that must see it | how it must be called
expected() {
    cat <<'END'
swapped_tags|grouped_receives_match_by_tag|tag
wrong_size|*windows_of_8_steps*|test reports
previous_slot|*windows_of_8_steps*|is wrong
no_truncation|sends_are_cut_to_the_receive|room for 1000|was written of a receive
blocking_accept|*connects_to_itself*|not there|may not block|accept of comm [0-9]+ has not returned
early_send_done|*windows_of_8_steps*|request was done|posted
close_reads|a_stalled_transfer_is_aborted|deregistered and freed
close_writes|aborted_memory_is_neither*|written after it had been deregistered
handle_overrun|handles_keep_to_128*|after the 128
handle_overrun_later|*connects_to_itself*|after the 128
property_left_alone|properties_are_filled*|leaves port alone
half_open_leaks|half_open_connections_are_freed*|descriptors open
profiler_not_stopped|profiler_events_start_and_stop|never stopped
profiler_stops_nothing|a_profiler_that_takes_no_event*|no event
profiler_late|profiler_events_start_and_stop|never stopped|that is done
marker_left|optional_receives_are_marked|marker was left
request_unwritten|*windows_of_8_steps*|did not write .request
group_done_early|a_group_ends*|test reports|is wrong
loss_is_internal|a_killed_peer*|ncclInternalError
loss_is_silent|a_killed_peer*|neither done nor failed
stranger_accepted|strangers_do_not_disturb|not there
stranger_blocks|strangers_do_not_disturb|not there|may not block
request_twice|*windows_of_8_steps*|given out twice
null_context|null_is_taken*|signal 11
sizes_overrun|*windows_of_8_steps*|sizes and more
one_connect_at_a_time|eight_connections*|connect|accept
finalize_ends_all|two_contexts*|Error
bit_flip|*windows_of_8_steps*|is wrong
packet_left_out|*windows_of_8_steps*|byte 4096 of [0-9]+ is wrong; there are [0-9]+ bytes of message [0-9]+ of tag [0-9]+ from its byte 8192 on, 
close_discards|what_is_sent_arrives*|Error|posted
thread_left|contexts_come_and_go*|threads
out_of_order|*windows_of_8_steps*|posted|is wrong|test reports
zero_lost|zero_bytes_are*|posted
listener_waits|handles_keep_to_128*|not there
registration_leaks|contexts_come_and_go*|bytes of heap
result_out_of_range|*windows_of_8_steps*|none of NCCL's
dead_peer_signal|a_killed_peer*|signal 13
attribute_blocks|attributes_are_hints*|setNetAttr took
END
}

# caught MISTAKE GLOB REGEX
caught() {
    local said
    said=$(TOY_FAULT=$1 "$driver" --api 11 --fail-fast --deadline-ms 1000 --fault-ms 1000 --call-ms 700 \
        --case "$2" "$toy" 2>&1) && { echo "not noticed:"; echo "$said"; return 1; }
    echo "$said"
    grep -qE "^# .*($3)" <<<"$said"
}

all_are_expected() {
    diff <(grep -oP 'X\(\K\w+' "$list" | sort) <(expected | cut -d'|' -f1 | sort)
}

behaves() {
    local said
    said=$("$driver" --api "$1" --deadline-ms 30000 "${@:2}" "$toy" 2>&1) && return 0
    grep -A1 '^not ok' <<<"$said"
    return 1
}

tap_case a_plugin_that_behaves_passes_every_case behaves 11
for api in 12 10 9 8 6; do
    tap_case "a_plugin_that_behaves_passes_v$api" behaves "$api" --place processes --no-faults
done
tap_case every_mistake_that_can_be_planted_is_expected all_are_expected
while IFS='|' read -r name glob regex; do
    tap_case "${name}_is_caught" caught "$name" "$glob" "$regex"
done < <(expected)
tap_done
