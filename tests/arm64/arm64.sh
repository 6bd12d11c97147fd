#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Cross-builds the tree for 64-bit ARM and runs its tests and sluice-bench under qemu's user mode.
# usage: arm64.sh SOURCE_ROOT
#
# Debian's packages for arm64 are unpacked into build-arm64/root, beside the system's, whose own list of
# packages stays as it is. qemu interprets instructions, one after the other: what the weak order of a
# real machine would show, it cannot (tests/model does that).
set -uo pipefail
root=$1
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=tests/tap.sh
. "$here/../tap.sh"

work=$root/build-arm64
sysroot=$work/root
build=$work/build
packages=(libc6-dev libstdc++6 libcmocka-dev libmbedtls-dev libjson-c-dev zlib1g-dev liburing-dev
    libibverbs-dev ibverbs-providers systemtap-sdt-dev
    libsqlite3-dev libmnl-dev libinih-dev libmicrohttpd-dev libcurl4-openssl-dev)
emulator=(qemu-aarch64-static -L "$sysroot")

[[ $(uname -m) != aarch64 ]] || tap_skip_all "this machine is one: the other tests are these"
for tool in aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu aarch64-linux-gnu-g++:g++-aarch64-linux-gnu \
    qemu-aarch64-static:qemu-user-static apt-get:apt dpkg-deb:dpkg; do
    command -v "${tool%%:*}" >/dev/null || tap_skip_all "there is no ${tool%%:*}: install ${tool#*:}"
done
for name in "${!SLUICE_@}"; do
    unset "$name"
done
mkdir -p "$work"

# apt-get on lists, a cache and a (empty) list of installed packages of its own: no root, nothing changed.
apt_arm64() {
    mkdir -p "$work"/apt/{lists,cache/archives}/partial
    : >"$work/apt/status"
    apt-get -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Sandbox::User=root \
        -o Dir::State="$work/apt" -o Dir::State::lists="$work/apt/lists" \
        -o Dir::State::status="$work/apt/status" -o Dir::Cache="$work/apt/cache" "$@"
}

fill_sysroot() {
    local archive
    [[ -f $work/filled && $(<"$work/filled") == "${packages[*]}" ]] && return 0
    rm -rf "$work"
    mkdir -p "$sysroot"
    apt_arm64 update && apt_arm64 install -y --no-install-recommends --download-only "${packages[@]}" || return
    for archive in "$work"/apt/cache/archives/*.deb; do
        dpkg-deb -x "$archive" "$sysroot" || return
    done
    rm -rf "$work/apt"
    echo "${packages[*]}" >"$work/filled"
}

# Warnings are errors, as in the build for this machine.
cross_build() {
    local ccache='[]'
    ! command -v ccache >/dev/null || ccache="['ccache']"
    printf '%s\n' '[constants]' "root = '$sysroot'" "ccache = $ccache" >"$work/root.ini"
    if [[ ! -f $build/build.ninja ]]; then
        meson setup "$build" "$root" --cross-file "$work/root.ini" --cross-file "$here/cross.ini" || return
    fi
    ninja -C "$build" >"$work/ninja.log" 2>&1 || { grep -v '^\[' "$work/ninja.log" | tail -40; return 1; }
}

# What the tests of a suite said, case by case, as cases of this script. Time limits are those of a machine that
# runs instructions itself, times ten.
run_suites() {
    local suites=() suite
    for suite in "$@"; do
        suites+=(--suite "$suite")
    done
    CMOCKA_MESSAGE_OUTPUT=TAP meson test -C "$build" --no-rebuild -t 10 "${suites[@]}" >"$work/test.log" 2>&1
    mapfile -t lines < <("$here/cases.py" "$build/meson-logs/testlog.json" "$here/unable")
    [[ ${#lines[@]} -gt 0 ]] || lines=("not ok meson ran no test, see $work/test.log")
    for suite in "${lines[@]}"; do
        tap_count=$((tap_count + 1))
        case $suite in
        "not ok "*) echo "not ok $tap_count - ${suite#not ok }"; tap_failed=1 ;;
        "ok "*) echo "ok $tap_count - ${suite#ok }" ;;
        *) echo "# $suite"; tap_count=$((tap_count - 1)) ;;
        esac
    done
}

# Seeds of its own; qemu takes some fifteen times as long.
swarm() {
    "${emulator[@]}" "$build/tests/sim/sim_swarm" --from 500000 --count 150
}

# Three ranks; every result is checked.
bench() {
    "${emulator[@]}" "$build/tools/bench/sluice-bench" -n 3 -b 8 -e 256K -f 8 -i 5 -w 1 "$@"
}

uses_neon() {
    "${emulator[@]}" "$build/tools/bench/sluice-bench" --list | grep -E '^kernel +neon +in use'
}

why=$(fill_sysroot 2>&1) || tap_skip_all "packages for arm64 cannot be had: ${why##*$'\n'}"
tap_case arm64_builds_without_a_warning cross_build
[[ $tap_failed -eq 0 ]] || tap_done
tap_case probes_are_nops_on_this_machine_too "$root/tests/abi/abi_probes.sh" "$build/lib/libsluice.so" built "$root" verbs
tap_case neon_kernels_are_chosen_by_themselves uses_neon
for transport in shm tcp; do
    tap_case "three_ranks_over_${transport}_get_right_results" bench -t "$transport" -C all
done
tap_case 150_seeds_of_the_swarm_end_well swarm
run_suites unit contract prop
tap_done
