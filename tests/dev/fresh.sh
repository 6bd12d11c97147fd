#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# README's commands, in README's order, on machines that have nothing but a bare Debian: a debootstrapped tree of each
# release, entered with mounts and processes of its own, into which the clone is copied. What is missing is thus what a
# newcomer lacks, and not what the machines of those who write this happen to have.
# usage: fresh.sh [--quick] [12|13]... [-- COMMAND...]    default: both releases
# --quick: build and bench, then the suites unit and contract alone. After --: commands in place of README's, each in one
# word ('./dev test abi/'). Says what each command took; each is one case of the last line, "N passed, N failed, N skipped".
#
# The bare trees and the packages that were fetched stay in $XDG_CACHE_HOME/sluice/fresh, so that the next time is
# short. DEV_MIRROR: another mirror than deb.debian.org or that of this machine's apt.
set -uo pipefail
root=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/sluice/fresh
passed=0 failed=0 skipped=0 quick='' releases=() others=() box=''

say() { printf '%s\n' "$*"; }

finish() {
    say "$passed passed, $failed failed, $skipped skipped"
    ((failed == 0))
    exit
}

skip() {
    say "skipped: fresh: $*"
    skipped=$((skipped + 1))
    finish
}

clean_up() { [[ -z $box ]] || rm -rf --one-file-system "$box"; }
trap clean_up EXIT
trap 'exit 130' INT TERM

mirror() {
    local found
    found=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
        grep -m 1 -E '^https?://.*/debian/?$')
    echo "${DEV_MIRROR:-${found:-http://deb.debian.org/debian}}"
}

# How this machine's apt reaches the mirror: proxies and what is not checked; nothing about packages.
apt_settings() {
    apt-config dump 2>/dev/null |
        grep -E '^Acquire::(http|https|Retries|ForceIPv[46]|Check-Valid-Until|Check-Date)(::[A-Za-z-]+)* "[^"]+";$'
}

suite_of() {
    case $1 in
    12) echo bookworm ;;
    13) echo trixie ;;
    *) return 1 ;;
    esac
}

# bare SUITE: its bare tree as an archive in the cache, made once.
bare() {
    local suite=$1 tree=$cache/$1.new started=$SECONDS
    [[ -s $cache/$suite.tar ]] && return
    say "debian $suite: making the bare tree (once)"
    rm -rf --one-file-system "$tree"
    debootstrap --variant=minbase "$suite" "$tree" "$(mirror)" >"$cache/$suite.log" 2>&1 ||
        { rm -rf --one-file-system "$tree"; return 1; }
    tar -C "$tree" --numeric-owner -cf "$cache/$suite.part" . && mv "$cache/$suite.part" "$cache/$suite.tar" &&
        rm -rf --one-file-system "$tree" && say "debian $suite: made in $((SECONDS - started)) s"
}

# unpack SUITE: a tree in $box, with the clone in /sluice: what git tracks, as it lies here.
unpack() {
    box=$(mktemp -d "$cache/box.XXXXXX") && chmod 755 "$box" && tar -C "$box" -xf "$cache/$1.tar" || return
    mkdir -p "$box/sluice" "$cache/$1.archives/partial"
    (cd "$root" && git ls-files -z --cached --others --exclude-standard |
        tar --null --no-recursion --ignore-failed-read -cf - -T -) | tar -C "$box/sluice" --no-same-owner -xf - || return
    printf '%s\n' "deb $(mirror) $1 main" >"$box/etc/apt/sources.list"
    apt_settings >"$box/etc/apt/apt.conf.d/90fresh"
    # As in any container: no package starts a service.
    printf '#!/bin/sh\nexit 101\n' >"$box/usr/sbin/policy-rc.d"
    chmod 755 "$box/usr/sbin/policy-rc.d"
    cp -L /etc/resolv.conf /etc/hosts "$box/etc/"
}

# The first process of the new mount namespace: what a machine has beside its files, none of this machine's devices.
enter() {
    local box=$1 archives=$2 name
    shift 2
    mount --make-rprivate / && mount --bind "$box" "$box" || return 125
    mount -t proc proc "$box/proc" && mount -t sysfs -o ro sysfs "$box/sys" && mount -t tmpfs -o mode=755 dev "$box/dev" &&
        mkdir "$box/dev/pts" "$box/dev/shm" && mount -t tmpfs -o mode=1777 shm "$box/dev/shm" &&
        mount -t devpts -o newinstance,ptmxmode=666 devpts "$box/dev/pts" || return 125
    for name in null zero full random urandom tty; do
        touch "$box/dev/$name" && mount --bind "/dev/$name" "$box/dev/$name" || return 125
    done
    ln -s pts/ptmx "$box/dev/ptmx"
    ln -s /proc/self/fd "$box/dev/fd"
    mount --bind "$archives" "$box/var/cache/apt/archives" || return 125
    cd "$box/sluice" && exec chroot "$box" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        HOME=/root LANG=C.UTF-8 CI=true ${http_proxy:+"http_proxy=$http_proxy"} ${https_proxy:+"https_proxy=$https_proxy"} \
        ${no_proxy:+"no_proxy=$no_proxy"} /bin/bash -c 'cd /sluice && "$@"; exit $?' bash "$@"
}
export -f enter

# README's commands: the lines of its first block that start with ./dev.
commands() {
    if [[ ${#others[@]} -gt 0 ]]; then
        printf '%s\n' "${others[@]}"
    elif [[ -n $quick ]]; then
        printf '%s\n' './dev bench' './dev build' './dev test unit/' './dev test contract/'
    else
        sed -n 's/^    \(\.\/dev [a-z]*\).*/\1/p' "$root/README.md"
    fi
}

release() {
    local number=$1 suite command started status words
    suite=$(suite_of "$number")
    if ! bare "$suite"; then
        say "skipped: fresh: debian $number: debootstrap could not make it from $(mirror) ($cache/$suite.log): $(tail -n 1 "$cache/$suite.log")"
        skipped=$((skipped + 1))
        return
    fi
    unpack "$suite" || { say "FAILED: fresh: debian $number: the tree could not be unpacked in $cache"; failed=$((failed + 1)); return; }
    while read -r command; do
        read -r -a words <<<"$command"
        say "debian $number: $command"
        started=$SECONDS status=0
        # shellcheck disable=SC2016
        unshare --mount --pid --fork --kill-child --ipc --uts bash -c 'enter "$@"; exit' bash \
            "$box" "$cache/$suite.archives" "${words[@]}" </dev/null 2>&1 | sed -u "s/^/  debian $number | /" || status=$?
        if [[ $status -eq 0 ]]; then
            passed=$((passed + 1))
            say "debian $number: $command: good, $((SECONDS - started)) s"
        else
            failed=$((failed + 1))
            say "FAILED: fresh: debian $number: $command ended with status $status after $((SECONDS - started)) s"
        fi
    done < <(commands)
    clean_up
    box=''
}

main() {
    local tool number
    while [[ $# -gt 0 ]]; do
        case $1 in
        --quick) quick=yes ;;
        12 | 13) releases+=("$1") ;;
        --) others=("${@:2}"); break ;;
        *) say "fresh: '$1' is none of --quick, 12, 13 and --" >&2; exit 2 ;;
        esac
        shift
    done
    [[ ${#releases[@]} -gt 0 ]] || releases=(12 13)
    [[ $EUID -eq 0 ]] || skip "needs root, for debootstrap and mounts"
    for tool in debootstrap unshare chroot git; do
        command -v "$tool" >/dev/null || skip "$tool is not here"
    done
    unshare --mount --pid --fork mount --make-rprivate / 2>/dev/null || skip "no mounts of their own can be had here"
    mkdir -p "$cache"
    for number in "${releases[@]}"; do
        release "$number"
    done
    finish
}

main "$@"
