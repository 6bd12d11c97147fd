#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The commands of docs/monitor.md, in its order, as they stand there: lines that begin with "$ ". One ends with status 0, or
# as "# status N" beside it says. To be run as root in a bare tree, whose files it changes:
#   ./dev fresh -- tests/deploy/monitor_page.sh
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.." || exit
page=docs/monitor.md

if [[ ${1:-} == --list ]]; then
    sed -n 's/^    \$ //p' "$page"
    exit
fi

# commands FROM TO: those between the two headings.
commands() { sed -n "/^## $1\$/,/^## $2\$/s/^    \\\$ //p" "$page"; }

# run COMMAND: in this shell, so that what it leaves in the background lives on.
run() {
    local wanted=0 status=0
    [[ $1 != *'# status '* ]] || wanted=${1##*# status }
    echo "\$ $1"
    eval "$1" </dev/null || status=$?
    [[ $status -eq $wanted ]] || { echo "monitor_page: status $status, not $wanted: $1"; return 1; }
}

if [[ ${1:-} == --rest ]]; then
    trap 'jobs -p | xargs -r kill' EXIT
    while IFS= read -r command; do
        said=$(mktemp)
        run "$command" >"$said" 2>&1 || { cat "$said"; exit 1; }
        cat "$said"
        case $command in
        'sluicectl verdicts') grep -q 'port try0  link_flap  NICDegraded  degraded .* went down and came back 1 time, [0-9]* ms' "$said" || exit ;;
        'sluicectl verdicts --all') grep -q 'the operator on duty' "$said" || exit ;;
        'sluicectl status') grep -q ': ok$' "$said" || exit ;;
        esac
    done < <(commands 'The first run' 'Troubleshooting')
    exit 0
fi

[[ $EUID -eq 0 && ! -e /etc/sluiced.conf && ! -e /usr/local/sbin/sluiced ]] || { echo "not in a bare tree: ./dev fresh -- $0"; exit 1; }
# What the tree has no device of, and a machine has.
[[ -e /dev/kmsg ]] || mknod /dev/kmsg c 1 11
run "$(sed -n '1,/^## Installing$/s/^    \$ //p' "$page")" || exit
while IFS= read -r command; do
    run "$command" || exit
done < <(commands Installing 'The first run')
# In a network of its own: the tree has that of the machine.
unshare --net "$0" --rest || { echo "monitor_page: status $?"; exit 1; }
echo "monitor_page: good"
