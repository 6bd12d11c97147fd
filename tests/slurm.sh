# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# A Slurm of a test's own: one host, its daemons, keys, ports and files here only for as long as the test runs.
# Sourced, after the options of the shell; brings tests/tap.sh, tests/wait.sh and tests/port.sh along.
#
#   slurm_needs scontrol       skips the test where Slurm's daemons, munge or that client are not installed
#   slurm_start PARTITIONS     skips the test where they cannot be started. PARTITIONS: more lines for slurm.conf, of
#                              which one makes the partition "all"
#   $folder                    for files of the test; gone at the end
#   slurm_before_stop          a function that the test may define: called before the daemons are stopped
here_of_slurm=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=tests/tap.sh
. "$here_of_slurm/tap.sh"
# shellcheck source=tests/wait.sh
. "$here_of_slurm/wait.sh"
# shellcheck source=tests/port.sh
. "$here_of_slurm/port.sh"
PATH=$PATH:/usr/sbin:/sbin

slurm_needs() { # CLIENT
    local pair name
    for pair in slurmctld:slurmctld slurmd:slurmd "$1:slurm-client" munged:munge; do
        command -v "${pair%:*}" >/dev/null || tap_skip_all "${pair%:*} is not installed (package ${pair#*:})"
    done
    # A Slurm that runs this test is not the one that it is about.
    for name in "${!SLURM_@}"; do
        unset "$name"
    done
}

folder=$(mktemp -d)
daemons=()

# From the last started to the first, so that none misses what it stands on.
slurm_stop() {
    local i
    ((${#daemons[@]} > 1)) && declare -F slurm_before_stop >/dev/null && slurm_before_stop
    for ((i = ${#daemons[@]} - 1; i >= 0; i--)); do
        kill "${daemons[i]}" 2>/dev/null
        until_true 10 gone "${daemons[i]}" 2>/dev/null || kill -9 "${daemons[i]}" 2>/dev/null
    done
    rm -rf "$folder"
}
trap slurm_stop EXIT
trap 'exit 1' TERM INT HUP

start_daemon() { # NAME COMMAND...
    local name=$1
    shift
    "$@" >"$folder/$name.out" 2>&1 </dev/null &
    daemons+=($!)
}

no_slurm() { # WHY DAEMON
    tap_skip_all "Slurm could not be started here: $1: $(cat "$folder/$2".{out,log} 2>/dev/null |
        grep -aE 'rror|fatal' | tail -1 | tr -d '\0')"
}

# The node may claim more CPUs than there are (config_overrides): ranks wait their turn.
write_slurm_config() { # PARTITIONS
    local host
    host=$(hostname -s)
    export SLURM_CONF=$folder/slurm.conf
    cat >"$SLURM_CONF" <<END
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
$1
END
}

a_node_is_idle() { [[ $(timeout 5 sinfo -h -n "$(hostname -s)" -t idle -p all -o %D) == 1 ]]; }

slurm_start() { # PARTITIONS
    mkdir "$folder/state" "$folder/spool"
    chmod 711 "$folder" # munge wants its socket within everyone's reach; the key is in nobody's
    (umask 077 && head -c 1024 /dev/urandom >"$folder/munge.key")
    write_slurm_config "$1"
    start_daemon munged munged -F --num-threads=2 --key-file="$folder/munge.key" --socket="$folder/munge.socket" \
        --pid-file="$folder/munged.pid" --log-file="$folder/munged.log" --seed-file="$folder/munge.seed"
    until_true 10 test -S "$folder/munge.socket" 2>/dev/null || no_slurm munged munged
    start_daemon slurmctld slurmctld -D -f "$SLURM_CONF" -L "$folder/slurmctld.log"
    start_daemon slurmd slurmd -D -f "$SLURM_CONF" -L "$folder/slurmd.log"
    until_true 30 a_node_is_idle >/dev/null 2>&1 || no_slurm "no node became idle" "slurm*d"
}
