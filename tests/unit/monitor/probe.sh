#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two agents in network namespaces that probe each other: what is lost is found, on the way where it is, and nobody without the secret is answered.
# usage: probe.sh SLUICED SLUICECTL FAKE_UD [quick]    FAKE_UD: a libibverbs of datagrams (tests/fake/fake_ud.c), or "-"; quick: some cases
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=tests/tap.sh
. "$here/../../tap.sh"
# shellcheck source=tests/wait.sh
. "$here/../../wait.sh"
sluiced=$1 ctl=$2 fake_ud=$3 quick=${4:-}
a=sl-probe-$$-a b=sl-probe-$$-b
ip netns add "$a" 2>/dev/null || tap_skip_all "network namespaces cannot be made here (root?)"
dir=$(mktemp -d)
pids=()
clean() {
    ((${#pids[@]} == 0)) || kill "${pids[@]}" 2>/dev/null
    wait
    ip netns del "$a"
    ip netns del "$b"
    rm -rf "$dir"
}
trap clean EXIT
ip netns add "$b" && ip -n "$a" link add v0 type veth peer name v1 netns "$b" && ip -n "$a" addr add 192.0.2.1/24 dev v0 &&
    ip -n "$b" addr add 192.0.2.2/24 dev v1 && ip -n "$a" link set v0 up && ip -n "$b" link set v1 up && ip -n "$a" link set lo up &&
    ip -n "$b" link set lo up || tap_skip_all "no veth pair can be made here"
printf 'nobody else knows this text\n' >"$dir/secret"
chmod 600 "$dir/secret"
printf 'and this is another text than that\n' >"$dir/other"
chmod 600 "$dir/other"

# rdma_port NAME GID: an RDMA port fake0:1 of the host NAME.
rdma_port() {
    local port=$dir/$1.rdma/fake0/ports/1
    mkdir -p "$port/gids" "$port/gid_attrs/types"
    echo '4: ACTIVE' >"$port/state"
    echo Ethernet >"$port/link_layer"
    echo "0000:0000:0000:0000:0000:ffff:$2" >"$port/gids/0"
    echo 'RoCE v2' >"$port/gid_attrs/types/0"
}
rdma_port a c000:0201
rdma_port b c000:0202
rdma_port c c000:0202

# begin NAME NAMESPACE SECRET: an agent that answers probes; nothing else is read.
begin() {
    {
        printf '[store]\npath = %s/%s.db\n[output]\nevents =\n[api]\nsocket = %s/%s\n' "$dir" "$1" "$dir" "$1"
        printf '[probe]\necho = on\nrate = 20000\nsecret = %s\nverbs_library = %s\n[sources]\nperiod_ms = 100\nrdma_root = %s/%s.rdma\n' "$3" "$fake_ud" "$dir" "$1"
        "$sluiced" --print-config | sed -n '/^\[sources\]/,/^\[/s/^#\([a-z_]*\) = \(on\|auto\)$/\1 = off/p'
    } >"$dir/$1.conf"
    FAKE_UD_ROOT=$dir/$1.rdma ip netns exec "$2" unshare --uts sh -c "hostname $1 && exec \"\$@\"" - "$sluiced" --config "$dir/$1.conf" >/dev/null 2>"$dir/$1.err" &
    pids+=($!)
    until_true 20 test -S "$dir/$1" || { cat "$dir/$1.err"; return 1; }
}
ask() { "$ctl" --socket "$dir/a" -o json probe --to "$@" >"$dir/json" 2>"$dir/err" || { cat "$dir/json" "$dir/err"; return 1; }; }
# has KEY LEAST MOST: of the last answer.
has() {
    python3 - "$dir/json" "$@" <<'END'
import json, sys
value = json.loads(open(sys.argv[1]).readline())
for key in sys.argv[2].split("."):
    value = value[key]
assert int(sys.argv[3]) <= value <= int(sys.argv[4]), f"{sys.argv[2]} is {value}"
END
}
# lose NAMESPACE MATCH PERCENT: of what comes in there.
lose() {
    ip netns exec "$1" nft -f - 2>"$dir/nft" <<END
table inet lossy {
    chain in {
        type filter hook input priority 0
        $2 numgen random mod 100 < $3 drop
    }
}
END
}

a_way_that_is_well() {
    ask 192.0.2.2 --count 300 && grep -q '"from":"a","to":"b"' "$dir/json" && has sent 300 300 && has answered 300 300 && has lost_there 0 0 &&
        has rtt_ns.p50 1 5000000
}
loss_on_the_way_there() {
    lose "$b" 'udp dport 9495' 10 && ask 192.0.2.2 --count 2000 --gap-us 200 && has lost_there 120 280 && has lost_back 0 0
    local status=$?
    ip netns exec "$b" nft flush ruleset
    return "$status"
}
loss_on_the_way_back() {
    lose "$a" 'udp sport 9495' 5 && ask 192.0.2.2 --count 2000 --gap-us 200 && has lost_back 50 160 && has lost_there 0 0
    local status=$?
    ip netns exec "$a" nft flush ruleset
    return "$status"
}
by_a_rail() { ask 192.0.2.2 --count 50 --rail v0 --address 192.0.2.1 --bytes 1400 && has answered 50 50 && grep -q '"rail":"v0"' "$dir/json"; }
nobody_is_there() { ! ask 192.0.2.77 --count 10 && grep -q 'nobody answers' "$dir/json"; }
another_secret() {
    ! "$ctl" --socket "$dir/c" -o json probe --to 192.0.2.2 --count 10 >"$dir/json" && grep -q 'nobody answers' "$dir/json"
}
# What is no packet of ours, from 1 byte to the longest: nothing comes back, and who has the secret is answered after it.
strangers_get_nothing() {
    ip netns exec "$a" python3 - <<'END' || return
import os, socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(0.3)
for n in list(range(0, 400)) + [8972, 8973, 20000]:
    s.sendto((b"SLPB\1\1" + n.to_bytes(2, "big") + os.urandom(n))[:n], ("192.0.2.2", 9495))
try:
    raise SystemExit(f"{len(s.recv(65536))} bytes came back")
except TimeoutError:
    pass
END
    ask 192.0.2.2 --count 20 && has answered 20 20
}
a_plan() {
    printf '# from to rail\n%s 192.0.2.2 v0\n- 192.0.2.2\n' "$dir/a" >"$dir/plan"
    "$ctl" --socket "$dir/a" -o json probe --plan "$dir/plan" --count 20 >"$dir/lines" && (($(wc -l <"$dir/lines") == 2)) &&
        "$ctl" diagnose "$dir/lines" >"$dir/said" && grep -q . "$dir/said"
}

over_rdma() {
    ask 192.0.2.2 --rdma --rail fake0:1 --count 300 && has sent 300 300 && has answered 300 300 && has rtt_ns.p50 1 5000000 &&
        grep -q '"transport":"rdma","to_rail":"fake0:1"' "$dir/json" && grep -q '"gid":"::ffff:192.0.2.1"' "$dir/json"
}
# Datagrams of the fake go to ports of UDP that are not the agent's.
loss_over_rdma() {
    lose "$b" 'udp dport != 9495' 10 && ask 192.0.2.2 --rdma --rail fake0:1 --count 2000 --gap-us 200 && has lost_there 120 280 && has lost_back 0 0
    local status=$?
    ip netns exec "$b" nft flush ruleset
    return "$status"
}
rdma_that_is_missing() {
    ! "$ctl" --socket "$dir/a" -o json probe --to 192.0.2.2 --rdma --rail fake7:1 --count 10 >"$dir/json" 2>"$dir/err" && grep -q 'no RDMA port fake7:1' "$dir/err" &&
        ! "$ctl" --socket "$dir/a" -o json probe --to 192.0.2.2 --rdma --rail fake0:1 --to-rail fake3:1 --count 10 >"$dir/json" && grep -q 'no ACTIVE RDMA port fake3:1' "$dir/json"
}

# Port 9495 is b's, and c only asks.
begin a "$a" "$dir/secret" && begin b "$b" "$dir/secret" && { [[ -n $quick ]] || begin c "$b" "$dir/other"; } || { echo "Bail out! the agents do not begin"; exit 1; }
tap_case a_way_that_is_well_loses_nothing a_way_that_is_well
if lose "$a" 'udp dport 1' 1; then
    ip netns exec "$a" nft flush ruleset
    tap_case loss_on_the_way_there_is_found_there loss_on_the_way_there
    [[ -n $quick ]] || tap_case loss_on_the_way_back_is_found_there loss_on_the_way_back
else
    tap_skip loss_is_found_where_it_is "nftables is not to be had here: $(head -n 1 "$dir/nft")"
fi
tap_case strangers_get_nothing_back strangers_get_nothing
if [[ $fake_ud == - ]]; then
    tap_skip probes_over_rdma "built without libibverbs (libibverbs-dev)"
else
    tap_case a_way_over_rdma_that_is_well_loses_nothing over_rdma
    if [[ -z $quick ]]; then
        [[ -s $dir/nft ]] || tap_case loss_over_rdma_is_found_where_it_is loss_over_rdma
        tap_case what_is_missing_for_rdma_is_said rdma_that_is_missing
    fi
fi
if [[ -z $quick ]]; then
    tap_case a_rail_and_an_address_are_kept_to by_a_rail
    tap_case who_does_not_answer_is_told nobody_is_there
    tap_case another_secret_is_not_answered another_secret
    tap_case a_plan_is_a_list_and_can_be_diagnosed a_plan
fi
tap_done
