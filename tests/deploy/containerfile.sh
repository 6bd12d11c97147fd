#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The Containerfile without a registry or a container engine: its instructions, in its order, where this bare Debian is the
# image that a stage begins with, and then what it made, started as the DaemonSet starts it. To be run in a bare tree:
#   ./dev fresh -- tests/deploy/containerfile.sh
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
file=$root/deploy/container/Containerfile
mark=/.containerfile-test

say() { printf 'containerfile: %s\n' "$*"; }
die() { say "$*"; exit 1; }
[[ $EUID -eq 0 && ! -e /usr/bin/cc && ! -e $mark ]] || die "not in a bare tree of its own: ./dev fresh -- tests/deploy/containerfile.sh"
touch "$mark"

# Each stage is a tree; the first ones are copies of this one as it is now. bash -c in it, from its folder.
stages=/stages
tree='' name='' folder=/ entry=''
inside() { chroot "$tree" /bin/sh -ec "cd '$folder' && $1"; }

from() {
    name=stage
    [[ $# -lt 3 || ${2^^} != AS ]] || name=$3
    [[ $1 == docker.io/library/debian:* ]] || die "FROM $1: only Debian's own image is known here"
    tree=$stages/$name folder=/
    mkdir -p "$tree"
    tar -C / --one-file-system --exclude ./sluice --exclude ./stages --exclude ./var/cache/apt/archives --exclude ".$mark" -cf - . | tar -C "$tree" -xf -
    mkdir -p "$tree"/{proc,sys,dev,var/cache/apt/archives/partial}
    mount --rbind /dev "$tree/dev" && mount --bind /proc "$tree/proc" && mount --rbind /sys "$tree/sys"
    mount --bind /var/cache/apt/archives "$tree/var/cache/apt/archives"
}

copy() {
    local from=$root
    [[ $1 != --from=* ]] || { from=$stages/${1#--from=}; shift; }
    [[ $# -eq 2 ]] || die "COPY $*: one source and one place are known here"
    local to=$2
    [[ $to == /* ]] || to=$folder/$to
    mkdir -p "$tree$to"
    cp -a "$from/${1#/}/." "$tree$to/"
}

run_instruction() {
    local word=$1 rest=$2 words
    read -ra words <<<"$rest"
    case $word in
    ARG) ;; # which Debian: this one
    FROM) from "${words[@]}" ;;
    WORKDIR) folder=$rest; mkdir -p "$tree$folder" ;;
    COPY) copy "${words[@]}" ;;
    RUN) inside "$rest" || die "RUN $rest: status $?" ;;
    USER) [[ $rest == 0:0 ]] || die "USER $rest: the DaemonSet starts it as 0" ;;
    ENTRYPOINT) entry=$(tr -d '[]",' <<<"$rest") ;;
    STOPSIGNAL | HEALTHCHECK) ;;
    *) die "what is $word?" ;;
    esac
}

whole=''
while IFS= read -r line; do
    [[ -n $whole || $line != \#* ]] || continue
    if [[ $line == *\\ ]]; then
        whole+=${line%\\}
        continue
    fi
    whole+=$line
    if [[ -n ${whole// /} ]]; then
        say "${whole:0:120}"
        run_instruction "${whole%% *}" "${whole#* }"
    fi
    whole=''
done <"$file"

[[ -n $entry && $entry != *' '* && -x $tree$entry ]] || die "ENTRYPOINT names nothing that is there: $entry"
for tool in cc meson clang; do
    [[ -z $(inside "command -v $tool || true") ]] || die "$tool is in the image"
done
say "the image has $(du -sm --one-file-system "$tree" | cut -f 1) MB, of which $(du -sm --one-file-system "$stages/build/image" | cut -f 1) MB are Sluice"

# The configuration of the DaemonSet, with the capabilities that are named there.
mkdir -p "$tree/etc/sluice"
sed -n '/^  sluiced.conf: |/,/^---/s/^    //p' "$root/deploy/kubernetes/sluiced.yaml" >"$tree/etc/sluice/sluiced.conf"
powers=-all
for one in $(sed -n 's/^ *add: \[\(.*\)\]$/\1/p' "$root/deploy/kubernetes/sluiced.yaml" | tr -d ,); do
    powers+=,+${one,,}
done
chroot "$tree" setpriv --nnp --inh-caps=-all --bounding-set="$powers" "$entry" --config /etc/sluice/sluiced.conf >/tmp/agent 2>&1 &
pid=$!
# It is asked for ten seconds at most, until it answers and reads all that it is asked to.
for ((i = 0; i < 100; i++)); do
    status=0
    chroot "$tree" sluicectl status >/tmp/status 2>&1 || status=$?
    [[ $status -ne 0 ]] || break
    sleep 0.1
done
cat /tmp/status
kill -TERM "$pid" && wait "$pid" || die "the agent ended with status $?: $(cat /tmp/agent)"
[[ $status -eq 0 ]] || die "sluicectl status: $status; $(cat /tmp/agent)"
say "good"
