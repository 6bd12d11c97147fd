#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The guest's side of boot.sh, started by init: makes the network, runs the job, tells its status, powers off.
# The job folder holds: argv and env (each entry ended by a zero byte), cwd, kernel (the image's folder).
job=/run/vm/job
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8

# status NUMBER: ends the guest.
status() {
    echo "$1" >"$job/rc"
    [[ ! -e $job/dmesg ]] || dmesg >"$job/dmesg"
    sync
    echo o >/proc/sysrq-trigger
    # The power goes in a moment; the first process must not end before.
    exec sleep infinity
}

# The ports have no fixed names before udev; the kernel tells each one's.
port() {
    local link
    for link in /sys/class/virtio-ports/*; do
        if [[ -r $link/name && $(<"$link/name") == "$1" ]]; then
            echo "/dev/${link##*/}"
            return
        fi
    done
    echo /dev/console
}

exec >"$(port out)" 2>"$(port err)" </dev/null
read -r kernel <"$job/kernel"
# Also the kernel's own requests for a module look here.
mkdir -p /lib/modules
ln -sfn "$kernel/lib/modules/$(uname -r)" "/lib/modules/$(uname -r)"
hostname vm
# As an operator of RDMA would set it.
ulimit -l unlimited
ulimit -n 65536
export VM_OUT=/run/vm/out

# shellcheck source=tests/vm/network.sh
. "$(dirname "$0")/network.sh"
network_up || { echo "vm: the guest's network cannot be set up" >&2; status 125; }

mapfile -d '' -t argv <"$job/argv"
mapfile -d '' -t settings <"$job/env"
cd "$(<"$job/cwd")" || status 125
read -r up _ </proc/uptime
echo "$up" >"$job/boot"
if [[ ${#argv[@]} -eq 1 ]]; then
    env "${settings[@]}" bash -c "${argv[0]}"
else
    env "${settings[@]}" "${argv[@]}"
fi
status $?
