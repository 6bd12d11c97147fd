#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Prepares what boot.sh boots: the distribution's stock kernel, some of its modules, and a small initramfs.
# Prints the folder that holds them, or says in a sentence why there is none.
# usage: image.sh [FLAVOUR]    the kernel of package linux-image-FLAVOUR; default: amd64
#
# The folder lies outside the tree, one per kernel version, and is made once:
#   vmlinux                the kernel, uncompressed
#   lib/modules/VERSION/   the modules that a network test can want, with their indexes
#   base.cpio.gz           busybox, and the modules it takes to reach the root over 9p
set -euo pipefail
flavour=${1:-amd64}
layout=3 # changes when what is in the folder changes
cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/sluice/vm
PATH=$PATH:/usr/sbin:/sbin

say() { printf 'vm: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# The way to the root over 9p leads through these.
base_modules=(virtio_pci virtio_console virtio_rng 9pnet_virtio 9p overlay)
# What tests use; the kernel asks for some of these by itself (rxe for a crc32), so whole folders.
folders=(arch/x86/crypto crypto lib net fs/9p fs/netfs fs/fscache fs/overlayfs fs/configfs fs/fuse
    drivers/infiniband drivers/virtio drivers/char drivers/dma-buf drivers/uio drivers/vfio virt)
links=(veth dummy tun ifb macvlan bonding/bonding)

tools() {
    local pair
    [[ $(uname -m) == x86_64 ]] || die "the virtual machine needs an x86_64 host, this is $(uname -m)"
    for pair in apt-get:apt apt-cache:apt dpkg-deb:dpkg depmod:kmod modprobe:kmod xz:xz-utils \
        zstd:zstd busybox:busybox-static qemu-system-x86_64:qemu-system-x86 flock:util-linux; do
        command -v "${pair%:*}" >/dev/null ||
            die "${pair%:*} is not here (package ${pair#*:}), so no virtual machine can be booted"
    done
}

# The package that linux-image-FLAVOUR stands for today. The archive moves on, so apt is asked again whenever
# its lists have changed; not each time, as it takes a second.
package_now() {
    local answer=$cache/now-$flavour
    if [[ ! -s $answer || ! $answer -nt /var/lib/apt/lists ]]; then
        mkdir -p "$cache" 2>/dev/null || die "the folder $cache for the kernel cannot be made"
        apt-cache depends --important "linux-image-$flavour" 2>/dev/null |
            sed -n 's/^ *Depends: \(linux-image-[^ ]*\)$/\1/p' | head -n 1 >"$answer.$$"
        mv "$answer.$$" "$answer"
    fi
    cat "$answer"
}

# Without package lists (a fresh container), or with old ones, they are fetched, where that is allowed.
refresh() {
    local as=()
    [[ $EUID -eq 0 ]] || as=(sudo -n)
    "${as[@]}" apt-get update >/dev/null 2>&1
}

# download PACKAGE FOLDER
download() {
    (cd "$2" && apt-get -o APT::Sandbox::User=root download "$1") >"$2/log" 2>&1
}

unpack() {
    local patterns=('*/boot/vmlinuz-*' '*/lib/modules/*/modules.*') name
    for name in "${folders[@]}"; do
        patterns+=("*/lib/modules/*/kernel/$name/*")
    done
    for name in "${links[@]}"; do
        patterns+=("*/lib/modules/*/kernel/drivers/net/$name.ko*")
    done
    # A folder that this kernel has built in is not there, which tar counts as an error.
    dpkg-deb --fsys-tarfile "$1" | tar -x -C "$2" --wildcards "${patterns[@]}" 2>/dev/null || true
    [[ ! -d $2/usr/lib/modules ]] || { mkdir -p "$2/lib" && mv "$2/usr/lib/modules" "$2/lib/"; }
}

# number FILE OFFSET BYTES
number() { od -An -v -t "u$3" -j "$2" -N "$3" "$1" | tr -d ' '; }

# expand VMLINUZ VMLINUX: takes the compressed kernel out of its wrapping, where the boot protocol's header
# says it is (setup_sects, payload_offset, payload_length). QEMU starts a plain ELF kernel without firmware,
# and the machine need not uncompress it in emulation: 3 s less.
expand() {
    local sectors start length
    sectors=$(number "$1" $((0x1f1)) 1)
    start=$(((sectors == 0 ? 4 : sectors) * 512 + 512 + $(number "$1" $((0x248)) 4)))
    length=$(number "$1" $((0x24c)) 4)
    # Behind xz and zstd streams, four bytes tell the size.
    payload() { tail -c +$((start + 1)) "$1" | head -c $((length - $2)); }
    case $(od -An -v -t x1 -j "$start" -N 4 "$1" | tr -d ' ') in
    fd377a58) payload "$1" 4 | xz -dc >"$2" ;;
    28b52ffd) payload "$1" 4 | zstd -dcq >"$2" ;;
    1f8b*) payload "$1" 0 | gzip -dc >"$2" ;;
    *) return 1 ;;
    esac
    [[ $(od -An -v -t x1 -N 4 "$2" | tr -d ' ') == 7f454c46 ]]
}

# initramfs FOLDER VERSION
initramfs() {
    local tree=$1/tree file name
    mkdir -p "$tree/bin" "$tree/proc" "$tree/sys" "$tree/dev" "$tree/modules"
    cp "$(command -v busybox)" "$tree/bin/busybox"
    for name in "${base_modules[@]}"; do
        modprobe -d "$1" -S "$2" --show-depends "$name" || return 1
    done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' >"$1/files"
    while IFS= read -r file; do
        name=${file##*/}
        name=${name%%.ko*}.ko
        case $file in
        *.xz) xz -dc "$file" >"$tree/modules/$name" ;;
        *.zst) zstd -dcq "$file" >"$tree/modules/$name" ;;
        *) cp "$file" "$tree/modules/$name" ;;
        esac
        echo "$name" >>"$tree/modules/order"
    done <"$1/files"
    (cd "$tree" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$1/base.cpio.gz"
    rm -rf "$tree" "$1/files"
}

# make PACKAGE FOLDER: in a folder beside it first, so that FOLDER is whole or not there.
make() {
    local package=$1 version=${1#linux-image-} new deb
    new=$(mktemp -d "$cache/new.XXXXXX")
    trap 'rm -rf "$new"' EXIT
    trap 'exit 130' INT TERM HUP
    say "fetching $package (once; 70 to 110 MB)"
    download "$package" "$new" ||
        { refresh && package=$(package_now) && [[ $package == "$1" ]] && download "$package" "$new"; } ||
        die "the kernel package $package cannot be fetched: $(grep -m 1 '^E:' "$new/log" || tail -n 1 "$new/log")"
    deb=("$new"/*.deb)
    unpack "${deb[0]}" "$new"
    rm -f "${deb[0]}" "$new/log"
    depmod -b "$new" "$version" 2>/dev/null || die "depmod cannot index the modules of $package"
    expand "$new/boot/vmlinuz-$version" "$new/vmlinux" ||
        die "$package holds no kernel that is packed with xz, zstd or gzip"
    initramfs "$new" "$version" || die "$package lacks a module that the root over 9p needs"
    rm -rf "${new:?}/boot" "${new:?}/usr"
    chmod 755 "$new"
    mv -T "$new" "$2"
    trap - EXIT
}

tools
package=$(package_now)
if [[ -z $package ]]; then
    refresh || true
    package=$(package_now)
fi
[[ -n $package ]] || die "no package linux-image-$flavour is known to apt (Debian has it), so there is no kernel to boot"
folder=$cache/${package#linux-image-}.$layout
if [[ ! -d $folder ]]; then
    exec 9>"$cache/lock"
    flock 9
    # Whoever held the lock has perhaps made it; what was interrupted is nobody's now.
    rm -rf "$cache"/new.*
    if [[ ! -d $folder ]]; then
        make "$package" "$folder"
        # Kernels that nobody booted for a week.
        find "$cache" -mindepth 1 -maxdepth 1 -type d -mtime +7 -exec rm -rf {} +
    fi
    exec 9>&-
fi
touch "$folder"
echo "$folder"
