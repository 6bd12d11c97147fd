#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# .ci/run adds up what its parts say, in README's order: in a tree whose `dev` and tests/run only say what they were
# asked.
# usage: ci_run.sh SOURCE_ROOT
set -uo pipefail
root=$1
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../tap.sh"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/.ci" "$dir/tests"
cp "$root/.ci/run" "$dir/.ci/run"
cp "$root/README.md" "$dir/README.md"
cat >"$dir/dev" <<'END'
#!/bin/bash
echo "$*" >>"$(dirname "$0")/asked"
case "$*" in
bench) echo a table; exit "${BENCH_STATUS:-0}" ;;
test) echo "${TEST_LINE:-5 passed, 0 failed, 2 skipped}"; exit "${TEST_STATUS:-0}" ;;
lint) echo "4 passed, 0 failed, 1 skipped" ;;
test\ --long*) echo "20 passed, 0 failed, 0 skipped" ;;
fresh*) echo "skipped: fresh: no root"; echo "0 passed, 0 failed, 1 skipped" ;;
esac
END
printf '%s\n' '#!/bin/bash' 'echo "slice-of-${#2}"' >"$dir/tests/run"
chmod +x "$dir/dev" "$dir/tests/run"

# ends STATUS LINE [SETTING...]
ends() {
    local status=$1 line=$2 got=0
    shift 2
    rm -f "$dir/asked"
    env "$@" "$dir/.ci/run" >"$dir/output" 2>&1 || got=$?
    cat "$dir/output"
    [[ $got -eq $status && $(tail -n 1 "$dir/output") == "$line" ]]
}

in_order() {
    ends 0 '30 passed, 0 failed, 4 skipped' || return
    printf '%s\n' bench test lint 'test --long slice-of-40' 'fresh --quick' | diff - "$dir/asked"
}

# What fails first is told again at the end, before the last line.
told_at_the_end() {
    ends 1 '29 passed, 1 failed, 4 skipped' TEST_LINE=$'FAILED: unit/x: y\n4 passed, 1 failed, 2 skipped' TEST_STATUS=1 ||
        return
    tail -n 3 "$dir/output" | grep -qx 'FAILED: unit/x: y'
}

tap_case readmes_commands_a_slice_and_the_bare_machines_are_one_sum in_order
tap_case a_failure_of_a_part_is_one_of_the_whole_and_told_at_the_end told_at_the_end
tap_case a_bench_that_fails_is_one_failure ends 1 '29 passed, 1 failed, 4 skipped' BENCH_STATUS=1
tap_case tests_that_end_without_a_word_are_one_failure ends 1 '25 passed, 1 failed, 2 skipped' TEST_LINE=killed TEST_STATUS=137
tap_case a_bad_status_after_a_good_line_is_one_failure ends 1 '30 passed, 1 failed, 4 skipped' TEST_STATUS=1
tap_done
