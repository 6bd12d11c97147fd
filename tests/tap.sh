# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# TAP for test scripts: source it, call tap_case or tap_skip per case, end with tap_done.

tap_count=0
tap_failed=0

# tap_wanted NAME: whether that case runs: any, or those that TAP_ONLY names, separated by blanks.
tap_wanted() { [[ -z ${TAP_ONLY:-} || " $TAP_ONLY " == *" $1 "* ]]; }

# tap_case NAME COMMAND...: passes when the command does; its output is shown when it does not.
tap_case() {
    local name=$1 output status=0
    tap_wanted "$name" || return 0
    shift
    output=$("$@" 2>&1 </dev/null) || status=$?
    tap_count=$((tap_count + 1))
    if [[ $status -eq 0 ]]; then
        echo "ok $tap_count - $name"
    else
        echo "not ok $tap_count - $name"
        printf '%s\n' "${output:-(no output)}" "status $status" | sed 's/^/# /'
        tap_failed=1
    fi
}

# tap_skip NAME REASON
tap_skip() {
    tap_wanted "$1" || return 0
    tap_count=$((tap_count + 1))
    echo "ok $tap_count - $1 # SKIP $2"
}

# Skips the whole script.
tap_skip_all() {
    echo "1..0 # SKIP $*"
    exit 0
}

tap_done() {
    echo "1..$tap_count"
    exit "$tap_failed"
}
