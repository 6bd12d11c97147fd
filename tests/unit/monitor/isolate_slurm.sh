#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A node drained and undrained by a real scontrol, in a Slurm of this script's own.
# usage: isolate_slurm.sh DRIVER [quick]
set -uo pipefail
driver=$1
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=tests/slurm.sh
. "$here/../../slurm.sh"

slurm_needs scontrol
# One node that lives, and five that Slurm believes to sleep: two partitions, so that sinfo names each twice.
slurm_start "SlurmdTimeout=0
PrivateData=cloud
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=60000
ResumeTimeout=60000
NodeName=ghost[1-5] NodeAddr=127.0.0.1 Port=9 CPUs=16 State=CLOUD
PartitionName=all Nodes=ALL Default=YES State=UP
PartitionName=more Nodes=ALL State=UP"
python3 "$here/isolate_slurm.py" "$driver" "$folder/work" "$(hostname -s)" "${@:2}"
