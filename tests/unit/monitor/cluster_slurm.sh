#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Agents found by a real sinfo, of a Slurm of this script's own.
# usage: cluster_slurm.sh SLUICED
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=tests/slurm.sh
. "$here/../../slurm.sh"

slurm_needs sinfo
slurm_start "PartitionName=all Nodes=ALL Default=YES State=UP"
python3 "$here/cluster_members.py" "$1" slurm "$(hostname -s)"
