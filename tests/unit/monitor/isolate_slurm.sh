#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A node drained and undrained by a real scontrol, in a Slurm of this script's own: its daemons, keys, ports and files
# are there only for as long as it runs.
# usage: isolate_slurm.sh DRIVER [quick]
set -uo pipefail
driver=$1
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=tests/tap.sh
. "$here/../../tap.sh"
# shellcheck source=tests/wait.sh
. "$here/../../wait.sh"
# shellcheck source=tests/port.sh
. "$here/../../port.sh"
PATH=$PATH:/usr/sbin:/sbin

for pair in slurmctld:slurmctld slurmd:slurmd scontrol:slurm-client munged:munge; do
    command -v "${pair%:*}" >/dev/null || tap_skip_all "${pair%:*} is not installed (package ${pair#*:})"
done
for name in "${!SLURM_@}"; do
    unset "$name"
done

folder=$(mktemp -d)
daemons=()

# From the last started to the first, so that none misses what it stands on.
stop_all() {
    local i
    for ((i = ${#daemons[@]} - 1; i >= 0; i--)); do
        kill "${daemons[i]}" 2>/dev/null
        until_true 10 gone "${daemons[i]}" 2>/dev/null || kill -9 "${daemons[i]}" 2>/dev/null
    done
    rm -rf "$folder"
}
trap stop_all EXIT
trap 'exit 1' TERM INT HUP

start() { # NAME COMMAND...
    local name=$1
    shift
    "$@" >"$folder/$name.out" 2>&1 </dev/null &
    daemons+=($!)
}

no_slurm() {
    tap_skip_all "Slurm could not be started here: $1: $(cat "$folder/$2".{out,log} 2>/dev/null |
        grep -aE 'rror|fatal' | tail -1 | tr -d '\0')"
}

# One node that lives, and five that Slurm believes to sleep: two partitions, so that sinfo names each twice.
write_config() {
    local host
    host=$(hostname -s)
    cat >"$folder/slurm.conf" <<END
ClusterName=sluice
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
CredType=cred/munge
SlurmdParameters=config_overrides
SlurmdTimeout=0
PrivateData=cloud
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=60000
ResumeTimeout=60000
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SchedulerType=sched/builtin
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SwitchType=switch/none
MailProg=/bin/true
MpiDefault=none
ReturnToService=2
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
NodeName=$host NodeAddr=127.0.0.1 CPUs=16 State=UNKNOWN
NodeName=ghost[1-5] NodeAddr=127.0.0.1 Port=9 CPUs=16 State=CLOUD
PartitionName=all Nodes=ALL Default=YES State=UP
PartitionName=more Nodes=ALL State=UP
END
    export SLURM_CONF=$folder/slurm.conf
}

a_node_is_idle() { [[ $(timeout 5 sinfo -h -n "$(hostname -s)" -t idle -p all -o %D) == 1 ]]; }

mkdir "$folder/state" "$folder/spool"
chmod 711 "$folder" # munge wants its socket within everyone's reach; the key is in nobody's
(umask 077 && head -c 1024 /dev/urandom >"$folder/munge.key")
write_config
start munged munged -F --num-threads=2 --key-file="$folder/munge.key" --socket="$folder/munge.socket" \
    --pid-file="$folder/munged.pid" --log-file="$folder/munged.log" --seed-file="$folder/munge.seed"
until_true 10 test -S "$folder/munge.socket" 2>/dev/null || no_slurm munged munged
start slurmctld slurmctld -D -f "$SLURM_CONF" -L "$folder/slurmctld.log"
start slurmd slurmd -D -f "$SLURM_CONF" -L "$folder/slurmd.log"
until_true 30 a_node_is_idle >/dev/null 2>&1 || no_slurm "no node became idle" "slurm*d"
python3 "$here/isolate_slurm.py" "$driver" "$folder/work" "$(hostname -s)" "${@:2}"
