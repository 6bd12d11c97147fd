#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# boot.sh and image.sh from the host's side: what reaches the guest, what comes back, and how it ends when
# something is missing or hangs.
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=tests/tap.sh
. "$here/../tap.sh"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# says STATUS TEXT COMMAND...: ends with that status, and TEXT is in what it prints; by a file, as a pipe
# would wait for what the command left behind.
says() {
    local status=$1 text=$2 output got=0
    shift 2
    "$@" >"$dir/output" 2>&1 || got=$?
    output=$(<"$dir/output")
    [[ $got -eq $status && $output == *"$text"* ]] || { echo "status $got, not $status; output:"; echo "$output"; return 1; }
}

# A PATH with everything but what makes a machine.
no_qemu() {
    local tool
    mkdir -p "$dir/bin"
    for tool in bash uname sed dirname readlink; do
        ln -sf "$(command -v "$tool")" "$dir/bin/$tool"
    done
    sed "s|^PATH=.*|PATH=$dir/bin|" "$here/image.sh" >"$dir/image.sh"
    says 1 'is not here (package' bash "$dir/image.sh"
}

wrong_cache() {
    : >"$dir/file"
    says 1 "the folder $dir/file/sluice/vm for the kernel cannot be made" \
        env XDG_CACHE_HOME="$dir/file" "$here/image.sh"
}

tap_case without_qemu_the_package_is_named no_qemu
tap_case an_option_that_is_none_is_named says 125 'no option --frob' "$here/boot.sh" --frob true
tap_case a_limit_that_is_no_number_is_named says 125 "'soon' is not a positive whole number" \
    "$here/boot.sh" --limit soon true

if ! why=$("$here/boot.sh" --prepare 2>&1); then
    for name in a_cache_that_cannot_be_made_is_named a_flavour_that_is_none_is_named \
        a_command_comes_and_goes_whole a_guest_that_hangs_is_ended \
        tests_go_on_where_soft_roce_made_the_kernel_spin tests_do_not_go_on_after_another_crash; do
        tap_skip "$name" "${why##*$'\n'}"
    done
    tap_done
fi

# Its arguments, directory and environment arrive; both outputs and the status return; files do not.
whole() {
    local status=0
    mkdir "$dir/a b" "$dir/kept"
    : >"$dir/job"
    cat >"$dir/job" <<'END_OF_JOB'
printf '%s\n' "$PWD" "$SLUICE_LOG" "$CI" "$#" "$@"
echo complaint >&2
echo forgotten >forgotten
echo kept >"$VM_OUT/kept"
[[ -z ${OTHER+set} ]] || echo "OTHER is set"
exit 42
END_OF_JOB
    (cd "$dir/a b" && OTHER=1 CI=true SLUICE_LOG='verbs:debug, info' \
        "$here/boot.sh" --limit 300 --out "$dir/kept" bash "$dir/job" '' 'two  words' $'a\nline' '*') \
        >"$dir/stdout" 2>"$dir/stderr" || status=$?
    cat "$dir/stdout" "$dir/stderr"
    [[ $status -eq 42 ]] || { echo "status $status, not 42"; return 1; }
    printf '%s\n' "$dir/a b" 'verbs:debug, info' true 4 '' 'two  words' $'a\nline' '*' |
        diff - "$dir/stdout" || return
    echo complaint | diff - "$dir/stderr" || return
    [[ $(<"$dir/kept/kept") == kept && ! -e "$dir/a b/forgotten" ]] || { echo "files are wrong"; return 1; }
    grep -q rxe "$dir/kept/kernel.log" || { echo "no messages of the kernel"; return 1; }
}

# The guest's process carries the folder's name in its command line, if it is still there.
ended() {
    local started=$SECONDS
    says 124 'ran longer than 3 s' "$here/boot.sh" --limit 3 --out "$dir/hangs" sleep 1000 || return
    ((SECONDS - started < 60)) || { echo "that took $((SECONDS - started)) s"; return 1; }
    ! grep -lsz "$dir/hangs" /proc/[0-9]*/cmdline
}

# crash WORDS: two scripts, the second of which crashes the kernel the first time, after these words in its log.
crash() {
    mkdir -p "$dir/guest"
    printf '%s\n' '#!/bin/bash' 'echo "ok 1 - one"' 'echo 1..1' >"$dir/guest/1_one.sh"
    cat >"$dir/guest/2_two.sh" <<'END_OF_SCRIPT'
#!/bin/bash
echo 'ok 1 - before'
if [[ ! -e $VM_OUT/crashed ]]; then
    : >"$VM_OUT/crashed"
    sync
    echo "<2>$(<"$(dirname "$0")/words")" >/dev/kmsg
    echo c >/proc/sysrq-trigger
fi
echo 'ok 2 - behind'
echo 1..2
END_OF_SCRIPT
    echo "$1" >"$dir/guest/words"
    chmod +x "$dir/guest"/*.sh
    "$here/vm_guest.sh" "$dir" 300 "$dir/guest"/*.sh
}

goes_on() {
    local status=0
    crash 'watchdog: BUG: soft lockup - CPU#1 stuck for 120s, RIP: rxe_requester+0x1/0x2' >"$dir/output" 2>&1 || status=$?
    cat "$dir/output"
    [[ $status -eq 0 ]] || { echo "status $status"; return 1; }
    printf '%s\n' 'ok 1 - 1_one: one' 'ok 2 - 2_two: before' 'ok 3 - 2_two: before' 'ok 4 - 2_two: behind' 1..4 |
        diff - <(grep -E '^(ok|not|1\.\.)' "$dir/output")
}

tap_case a_cache_that_cannot_be_made_is_named wrong_cache
tap_case a_flavour_that_is_none_is_named says 1 'no package linux-image-nonesuch is known' "$here/image.sh" nonesuch
tap_case a_command_comes_and_goes_whole whole
tap_case a_guest_that_hangs_is_ended ended
tap_case tests_go_on_where_soft_roce_made_the_kernel_spin goes_on
tap_case tests_do_not_go_on_after_another_crash says 125 'ended without telling' crash 'Oops: in rxe_requester'
tap_done
