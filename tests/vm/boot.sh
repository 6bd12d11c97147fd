#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Boots the distribution's kernel in QEMU, with this machine's files and four soft-RoCE devices in it, runs a
# command there, and ends as the command did.
# usage: boot.sh [options] COMMAND [ARGUMENT...]
#   --limit SECONDS   the guest is ended after that; default: 600
#   --out DIR         what the command writes to $VM_OUT lands in DIR; the kernel's messages too
#   --cpus N, --memory MIB, --kernel FLAVOUR (of linux-image-FLAVOUR)   default: 2, 3072, amd64
#   --nics MODEL      two NICs of that model of QEMU's, on one wire: 0000:00:10.0 and 0000:00:11.0
#   --no-iommu        not behind an IOMMU, as otherwise
#   --prepare         only fetch and unpack the kernel, where that is not done yet
#
# COMMAND runs as root in the caller's current directory with the caller's SLUICE_* variables and CI; one
# argument alone is a line for bash. It sees every file of the host; what it writes is forgotten, but for
# $VM_OUT. The status is the command's, 124 at the limit, 125 when the guest did not come up or crashed.
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")

say() { printf 'vm: %s\n' "$*" >&2; }
die() { say "$*"; exit 125; }
usage() { sed -n 's/^# \{0,1\}//; 5,16p' "$0"; }

limit=600 out='' cpus=2 memory=3072 flavour=amd64 nics='' iommu=1 prepare=
while [[ $# -gt 0 ]]; do
    case $1 in
    --limit | --out | --cpus | --memory | --kernel | --nics)
        [[ $# -gt 1 ]] || die "$1 wants a value (see --help)"
        case $1 in
        --limit) limit=$2 ;;
        --out) out=$2 ;;
        --cpus) cpus=$2 ;;
        --memory) memory=$2 ;;
        --kernel) flavour=$2 ;;
        --nics) nics=$2 ;;
        esac
        shift 2
        ;;
    --no-iommu) iommu=; shift ;;
    --prepare) prepare=1; shift ;;
    --help | -h) usage; exit 0 ;;
    --) shift; break ;;
    -*) die "there is no option $1 (see --help)" ;;
    *) break ;;
    esac
done
for number in "$limit" "$cpus" "$memory"; do
    [[ $number =~ ^[1-9][0-9]*$ ]] || die "'$number' is not a positive whole number (--limit, --cpus, --memory)"
done

image=$("$here/image.sh" "$flavour") || exit 125
[[ -z $prepare ]] || exit 0
[[ $# -gt 0 ]] || die "no command to run (see --help)"

job=$(mktemp -d) || exit 125
qemu='' timer=''
# Nothing that was started here outlives this script, and only that is ended.
clean_up() {
    [[ -z $qemu ]] || kill -KILL "$qemu" 2>/dev/null
    [[ -z $timer ]] || kill "$timer" 2>/dev/null
    rm -rf "$job"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

printf '%s\0' "$@" >"$job/argv"
for name in "${!SLUICE_@}" CI; do
    [[ -z ${!name+set} ]] || printf '%s\0' "$name=${!name}"
done >"$job/env"
pwd -P >"$job/cwd"
echo "$image" >"$job/kernel"
echo "$here/session.sh" >"$job/session"
if [[ -n $out ]]; then
    mkdir -p "$out" || exit 125
    : >"$job/dmesg"
else
    out=$job/out
    mkdir "$out"
fi
# An initramfs may be several archives, one behind the other: init is always the tree's.
{
    cat "$image/base.cpio.gz"
    (cd "$here" && echo init | busybox cpio -o -H newc 2>/dev/null | gzip -1)
} >"$job/initrd"

# The guest's output goes through pipes: QEMU would overwrite a plain file, and reads a terminal.
mkfifo "$job/stdout" "$job/stderr"
cat "$job/stdout" &
readers=($!)
cat "$job/stderr" >&2 &
readers+=($!)
# Held open, so that the readers end with QEMU, even if it never opened them.
exec 8>"$job/stdout" 9>"$job/stderr"

share() {
    printf '%s\n' -fsdev "local,id=$1,path=${2//,/,,},security_model=none${3:-}" \
        -device "virtio-9p-pci,fsdev=$1,mount_tag=$1"
}
mapfile -t shares < <(share host / ,readonly=on,multidevs=remap; share job "$job"; share out "$out")

# Emulation, not KVM: the same everywhere. Without erms, fsrm and pclmulqdq, which are slow when emulated,
# rxe moves twice as much. One CPU alone would turn each poll into a scheduler's tick.
# A kernel that spins for two minutes, as rxe can on a machine with much else to do, ends instead of waiting for the limit.
append="console=ttyS0 quiet panic=-1 oops=panic mitigations=off nokaslr random.trust_cpu=on audit=0 tsc=reliable watchdog_thresh=60 softlockup_panic=1"
# shellcheck disable=SC2054 # QEMU's commas
machine=(-machine q35 -accel tcg,thread=multi,tb-size=512 -cpu "max,-erms,-fsrm,-pclmulqdq"
    -smp "$cpus" -m "$memory" -nodefaults -no-user-config -no-reboot -display none -nic none
    -kernel "$image/vmlinux" -initrd "$job/initrd"
    -serial "file:$job/console" -device virtio-rng-pci -device virtio-serial-pci
    -chardev "file,id=out,path=$job/stdout,append=on" -device virtserialport,chardev=out,name=out
    -chardev "file,id=err,path=$job/stderr,append=on" -device virtserialport,chardev=err,name=err)
# The NICs are for DPDK's drivers, so the guest has no driver of its own for them.
if [[ -n $nics ]]; then
    [[ -z $iommu ]] || { machine+=(-device intel-iommu) && append+=' intel_iommu=on iommu=pt'; }
    for port in 0 1; do
        machine+=(-netdev "hubport,hubid=0,id=nic$port"
            -device "$nics,netdev=nic$port,addr=0x1$port,mac=02:00:00:00:01:0$port")
    done
fi
# It dies with this script, however that ends.
setpriv --pdeathsig KILL -- qemu-system-x86_64 "${machine[@]}" -append "$append" "${shares[@]}" \
    </dev/null >"$job/qemu.log" 2>&1 8>&- 9>&- &
qemu=$!
sleep "$limit" 8>&- 9>&- &
timer=$!
wait -n "$qemu" "$timer"
late=
kill "$timer" 2>/dev/null || late=1
kill -KILL "$qemu" 2>/dev/null || late=
wait "$qemu" 2>/dev/null
qemu='' timer=''
exec 8>&- 9>&-
wait "${readers[@]}" 2>/dev/null

if [[ -s $job/dmesg || -s $job/console ]] && [[ $out != "$job/out" ]]; then
    cat "$job/console" "$job/dmesg" >"$out/kernel.log" 2>/dev/null
fi
if [[ -s $job/rc ]]; then
    exit "$(<"$job/rc")"
fi
for log in "$job/console" "$job/qemu.log"; do
    [[ ! -s $log ]] || tail -n 60 "$log" >&2
done
[[ -z $late ]] || { say "the guest was ended: it ran longer than $limit s (--limit)"; exit 124; }
die "the guest ended without telling the command's status; what it and QEMU said last is above"
