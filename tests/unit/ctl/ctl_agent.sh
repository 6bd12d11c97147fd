#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# sluicectl and a sluiced of its own: what each subcommand says and ends with, those who ask badly, and completion.
# usage: ctl_agent.sh SLUICECTL SLUICED SOURCE_ROOT
set -uo pipefail
ctl=$1 sluiced=$2 root=$3
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/../../tap.sh"
# shellcheck source=tests/unit/monitor/only.sh
. "$(dirname "$0")/../monitor/only.sh"

dir=$(mktemp -d)
pid=
trap 'over; rm -rf "$dir" "$dir.pid"' EXIT
# Of a case that failed, the agent is left.
over() {
    [[ ! -s $dir.pid ]] || kill -KILL "$(<"$dir.pid")" 2>/dev/null
    : >"$dir.pid"
}
port=$dir/rdma/mlx5_0/ports/1 socket=$dir/run/api.sock
export TZ=UTC
unset SUDO_USER

# until_true COMMAND...: within ten seconds.
until_true() {
    local i
    for ((i = 0; i < 200; i++)); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.05
    done
    echo "not within its time: $*"
    return 1
}

start() {
    "$sluiced" --config "$dir/conf" "$@" >/dev/null 2>"$dir/err" &
    pid=$!
    echo "$pid" >"$dir.pid"
}

# begin [ARGUMENT...]: an agent over one port of a made tree.
begin() {
    rm -rf "${dir:?}"/* && mkdir -p "$port/counters" && echo '4: ACTIVE' >"$port/state" &&
        echo '400 Gb/sec (4X NDR)' >"$port/rate" && echo 0 >"$port/counters/port_xmit_packets" || return
    cat >"$dir/conf" <<END
[store]
path = $dir/state.db
[output]
events = $dir/events
[sources]
period_ms = 100
rdma_root = $dir/rdma
$(sources_off "$sluiced" rdma)
[api]
socket = $socket
END
    start "$@"
    until_true "$ctl" --socket "$socket" status || { cat "$dir/err"; return 1; }
}

end() {
    local status=0
    kill -TERM "$pid" && wait "$pid" || status=$?
    pid=
    : >"$dir.pid"
    [[ $status -eq 0 && ! -e $socket ]] || { echo "status $status"; cat "$dir/err"; return 1; }
}

break_it() {
    local i
    for ((i = 1; i <= 4; i++)); do
        echo $((i * 1000)) >"$port/counters/port_xmit_packets"
        sleep 0.12
    done
    echo '1: DOWN' >"$port/state"
    until_true grep -q '"to":"bad"' "$dir/events"
}

# ends STATUS ARGUMENT...: sluicectl, asked of that agent, ends so; what it says is in $dir/out and $dir/said.
ends() {
    local wanted=$1 got=0
    shift
    timeout 20 "$ctl" --socket "$socket" "$@" >"$dir/out" 2>"$dir/said" </dev/null || got=$?
    [[ $got == "$wanted" ]] || { echo "$* ended with $got, not $wanted"; cat "$dir/out" "$dir/said"; return 1; }
}

# says REGEX: a line of what was said last.
says() { grep -qE -- "$1" "$dir/out" || { echo "not there: $1"; cat "$dir/out"; return 1; }; }

# json EXPRESSION: is to hold of what was said last, as `all`, its lines, and `it`, the first; json_holds looks.
json() {
    cp "$dir/out" "$dir/json.$((++answers))" && echo "$1" >"$dir/expression.$answers"
}
json_holds() {
    python3 - "$dir" "$answers" <<'END'
import json, sys
for number in range(1, int(sys.argv[2]) + 1):
    all = [json.loads(line) for line in open(f"{sys.argv[1]}/json.{number}")]
    it = all[0]
    expression = open(f"{sys.argv[1]}/expression.{number}").read()
    assert eval(expression), (expression, it)
END
}
answers=0

a_healthy_host_is_said_to_be() {
    begin && ends 0 status && says '^[^ ]+: ok$' && says '^rdma +sysfs +up +0 +[0-9]+ s ago$' && says '^link +rtnetlink +off ' &&
        ends 0 ports && says '^PORT +LINK +IN USE +SPEED ' && says '^mlx5_0:1 +up +no +400 Gbit/s ' &&
        ends 0 ranks && says '^no processes are watched$' && ends 0 verdicts && says '^there is no open verdict$' &&
        ends 0 events && [[ ! -s $dir/out ]] && ends 0 top && says '^mlx5_0:1 +up ' && end
}

what_is_wrong_is_said_by_all() {
    begin && break_it && ends 3 status && says '^[^ ]+: BAD$' &&
        says '^port mlx5_0:1  link_down  bad    fatal     [0-9-]{10} [0-9:]{8} \([0-9]+ s ago\)  the port is down' &&
        ends 0 ports && says '^mlx5_0:1 +down +yes .* bad: link_down$' && ends 0 verdicts &&
        says '^ 1  port mlx5_0:1  link_down  NICDown  fatal .* open +- +the port is down' &&
        ends 0 events && says '^ +1  [0-9-]{10} [0-9:.]{12}  port mlx5_0:1 +link_down +ok -> bad +the port is down' || return
    ends 0 ack 1 --by jane && says '^verdict 1 is acknowledged$' && ends 0 verdicts && says 'open +jane \(uid [0-9]+\)' &&
        ends 1 ack 7 && grep -qx 'sluicectl: there is no verdict 7' "$dir/said" || return
    echo '4: ACTIVE' >"$port/state"
    sleep 0.3
    ends 0 clear port mlx5_0:1 && says '^what was wrong with port mlx5_0:1 has ended$' &&
        ends 0 clear port mlx5_0:1 && says '^nothing was wrong with port mlx5_0:1$' &&
        ends 1 clear port mlx5_9:1 && ends 1 clear pond mlx5_0:1 && ends 0 status && ends 0 verdicts &&
        says '^there is no open verdict$' && ends 0 verdicts --all && says '^ 1  port mlx5_0:1 .* ago\)  jane ' &&
        ends 0 events --since 1 && says 'bad -> ok +cleared by an operator' && [[ $(wc -l <"$dir/out") -eq 1 ]] && end
}

json_is_what_the_agent_answers() {
    begin && break_it && ends 3 status -o json && json 'it["version"] == 1 and it["health"] == "bad" and it["conditions"][0]["check"] == "link_down"' &&
        ends 0 ports -o json && json 'it["ports"][0]["subject"] == "mlx5_0:1" and it["ports"][0]["up"] is False' &&
        ends 0 ranks -o json && json 'it["processes"] == []' &&
        ends 0 -o json verdicts && json 'it["verdicts"][0]["class"] == "NICDown" and it["verdicts"][0]["closed"] is None' &&
        ends 0 events --output=json && json '[one["id"] for one in all] == [1] and it["type"] == "transition"' &&
        ends 0 top -o json --count 2 && json 'len(all) == 2 and it["status"]["health"] == "bad" and it["ports"]["ports"]' &&
        ends 0 ack 1 -o json && json 'it["acked"] == 1' && ends 0 clear -o json port mlx5_0:1 && json 'it["cleared"]' &&
        ends 0 doctor -o json && json '{one["name"]: one["state"] for one in it["findings"]}["agent"] == "ok"' && json_holds && end
}

# Also over a restart of the agent.
followers_hear_of_it_at_once() {
    local follower
    begin || return
    "$ctl" --socket "$socket" events --follow >"$dir/followed" 2>"$dir/lost" &
    follower=$!
    sleep 0.3
    break_it && until_true grep -q 'ok -> bad' "$dir/followed" || { kill "$follower"; return 1; }
    kill -TERM "$pid" && wait "$pid"
    until_true grep -q '^sluicectl: ' "$dir/lost" || { kill "$follower"; return 1; }
    start
    until_true "$ctl" --socket "$socket" clear port mlx5_0:1 && until_true grep -q 'bad -> ok' "$dir/followed"
    local status=$?
    kill "$follower" && wait "$follower" 2>/dev/null
    [[ $status -eq 0 && $(grep -c 'ok -> bad' "$dir/followed") -le 2 && $(wc -l <"$dir/lost") -eq 1 ]] ||
        { cat "$dir/followed" "$dir/lost"; return 1; }
    end
}

an_agent_that_is_not_there_or_reads_nothing_is_said() {
    socket=$dir/none ends 4 status && grep -q '^sluicectl: no agent answers at .*/none' "$dir/said" || return
    socket=$dir/none ends 4 events && socket=$dir/none ends 4 top && socket=$dir/none ends 4 ack 1 || return
    python3 - "$dir/other" <<'END' &
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
for _ in range(2):
    client = listener.accept()[0]
    client.recv(4096)
    client.sendall(b"HTTP/1.0 200 OK\r\n\r\n\x1b[2Jhello")
    client.close()
END
    until_true test -S "$dir/other" && socket=$dir/other ends 4 status && grep -q 'is no agent of Sluice$' "$dir/said" &&
        socket=$dir/other ends 4 top && wait "$!" || return
    begin || return
    sed -i "s#^kmsg = off#kmsg = on\nkmsg_path = $dir/no-log#" "$dir/conf"
    kill -HUP "$pid" && until_true grep -q . <("$ctl" --socket "$socket" status | grep 'not read: kmsg') && ends 4 status &&
        says '^[^ ]+: DEGRADED$' && says '^not read: kmsg: ' && ends 3 doctor && says '^source kmsg +WRONG +down ' && end
}

doctor_works_without_an_agent() {
    mkdir -p "$dir/host/proc/sys/kernel" "$dir/host/sys/kernel/btf" "$dir/host/sys/fs/cgroup" "$dir/host/sys/class/infiniband/mlx5_0" \
        "$dir/host/proc/pressure" "$dir/host/sys/kernel/security" &&
        : >"$dir/host/sys/kernel/btf/vmlinux" && : >"$dir/host/sys/fs/cgroup/cgroup.controllers" && echo some >"$dir/host/proc/pressure/memory" &&
        echo 'none integrity [confidentiality]' >"$dir/host/sys/kernel/security/lockdown" || return
    socket=$dir/none ends 3 doctor --root "$dir/host" && says '^agent +WRONG +no agent answers' && says '^ +-> systemctl start sluiced' &&
        says '^BTF +ok ' && says '^cgroup +ok +cgroup v2$' && says '^RDMA +ok +1 RDMA device ' && says '^pressure +ok ' &&
        says '^lockdown +less +the kernel is locked down' && says "^kernel's log +less " && says '^NVML +' && says '^store +' || return
    rm -r "$dir/host/sys" "$dir/host/proc/pressure"
    socket=$dir/none ends 3 doctor --root "$dir/host" && says '^BTF +less ' && says '^ +-> a kernel with CONFIG_DEBUG_INFO_BTF=y$' &&
        says '^cgroup +less +no cgroup v2' && says '^RDMA +less ' && says '^pressure +less ' && says '^tracefs +less '
}

a_recording_is_replayed() {
    begin --record "$dir/bundle" && break_it && ends 0 clear port mlx5_0:1 && sleep 0.3 && kill -HUP "$pid" && sleep 0.3 && end &&
        ends 0 replay "$dir/bundle" && says '^[0-9]+ inputs; 3 transitions and events recorded, 3 replayed, 0 differ$' &&
        says '^ +1  .* port mlx5_0:1  link_down  ok -> bad ' && ends 0 replay "$dir/bundle" -o json && json 'all[-1]["differences"] == 0 and len(all) == 4' && json_holds || return
    mkdir "$dir/folder" && sed 's/"bad":true/"bad":false/' "$dir/bundle" >"$dir/folder/inputs.jsonl" && ends 3 replay "$dir/folder" &&
        grep -q '^line [0-9]*: recorded {' "$dir/said" && grep -q '^line [0-9]*: replayed nothing$' "$dir/said" &&
        echo what >>"$dir/folder/inputs.jsonl" && ends 1 replay "$dir/folder" && grep -q 'inputs.jsonl:[0-9]*: that is no object' "$dir/said" &&
        ends 1 replay "$dir/none"
}

wrong_words_are_refused() {
    local words
    for words in what 'status more' 'ports --all' 'top --count' 'top --count x' 'events --since' 'events --since -1' 'events --since=1x' \
        'events --until 3' 'verdicts all' ack 'ack x' 'ack 0' 'ack 1 2' 'clear port' 'clear' replay 'replay a b' 'doctor --root' 'status -o csv' -o \
        'status --socket'; do
        # shellcheck disable=SC2086
        ends 2 $words && [[ ! -s $dir/out && -s $dir/said ]] || { echo "$words"; return 1; }
    done
}

# In a terminal: it draws on a screen of its own, and q puts everything back.
top_in_a_terminal_ends_by_q() {
    begin && break_it && python3 - "$ctl" "$socket" <<'END' && end
import os, pty, select, struct, fcntl, sys, termios, time
ctl, path = sys.argv[1:]
pid, terminal = pty.fork()
if pid == 0:
    os.execl(ctl, ctl, "--socket", path, "top")
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 60, 0, 0))
before = termios.tcgetattr(terminal)
seen, until, asked = b"", time.monotonic() + 10, False
while time.monotonic() < until:
    if not select.select([terminal], [], [], 0.1)[0]:
        continue
    try:
        data = os.read(terminal, 65536)
    except OSError:
        break
    seen += data
    if not asked and seen.count(b"link_down") >= 1:
        raw = termios.tcgetattr(terminal)
        assert not raw[3] & termios.ICANON and not raw[3] & termios.ECHO
        os.write(terminal, b"q")
        asked = True
assert asked, seen
_, status = os.waitpid(pid, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert seen.startswith(b"\x1b[?1049h\x1b[?25l") and seen.rstrip().endswith(b"\x1b[?25h\x1b[?1049l"), seen
frame = seen[seen.index(b"\x1b[H"):]
frame = frame[:frame.index(b"\x1b[J")]
lines = frame.replace(b"\x1b[H", b"").replace(b"\x1b[K", b"").split(b"\r\n")
assert len(lines) <= 12, lines
assert all(len(line) <= 60 for line in lines), lines
END
}

# ---- those who ask badly ----

hostile_requests_leave_the_agent_at_work() {
    begin && python3 - "$socket" "$pid" <<'END' && end
import random, socket, sys, time
path, pid = sys.argv[1:]
def ask(data, wait=2):
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(wait)
    client.connect(path)
    answer = b""
    try:
        client.sendall(data)
        while b"\r\n\r\n" not in answer:
            more = client.recv(65536)
            if not more:
                break
            answer += more
    except OSError:
        pass
    client.close()
    return answer
def cpu():
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])
assert b" 200 " in ask(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
for data, status in ((b"GET /v1/events?since=-1 HTTP/1.1\r\nHost: a\r\n\r\n", b" 400 "), (b"GET /../../etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n", b" 404 "),
                     (b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", b" 414 "), (b"POST /v1/clear HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n", b" 413 "),
                     (b"POST /v1/clear HTTP/1.1\r\nHost: a\r\n\r\n", b" 400 "), (b"BREW /v1/status HTTP/1.1\r\nHost: a\r\n\r\n", b" 405 ")):
    answer = ask(data)
    assert status in answer.split(b"\r\n")[0], (data[:60], answer)
rng = random.Random(1)
for _ in range(60):
    ask(bytes(rng.randrange(256) for _ in range(rng.randrange(1, 400))) + b"\r\n\r\n", 0.02)
# Slow ones, beside one who asks 1,000 times.
slow = []
for _ in range(50):
    client = socket.socket(socket.AF_UNIX)
    client.connect(path)
    client.sendall(b"GET /v1/st")
    slow.append(client)
began, used = time.monotonic(), cpu()
client = socket.socket(socket.AF_UNIX)
client.connect(path)
client.settimeout(5)
for number in range(1000):
    client.sendall(b"GET /v1/status HTTP/1.1\r\nHost: a\r\n\r\n")
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += client.recv(65536)
    head, body = answer.split(b"\r\n\r\n", 1)
    assert b" 200 " in head.split(b"\r\n")[0], answer
    length = int([line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")][0].split(b":")[1])
    while len(body) < length:
        body += client.recv(65536)
    if number % 100 == 0:
        slow[number // 100].sendall(b"a")
print(f"1,000 questions: {time.monotonic() - began:.2f} s, {(cpu() - used) * 10} ms of processor")
# Idle connections cost nothing.
used = cpu()
time.sleep(1)
assert cpu() - used <= 10, cpu() - used
END
}

completion_knows_every_subcommand() {
    local file=$root/tools/ctl/completion name
    bash -n "$file/sluicectl.bash" || return
    for name in $("$ctl" --help | sed -nE 's/^ +sluicectl \[--socket PATH\] \[-o json\] ([a-z]+).*/\1/p') paths; do
        grep -q "[' ]${name}[' ]" "$file/sluicectl.bash" && grep -q "'$name:" "$file/_sluicectl" &&
            grep -q "^.*sluicectl.*$name" "$root/docs/man/sluicectl.1" || { echo "$name"; return 1; }
    done
    [[ -n $name && $("$ctl" --help | grep -c 'socket PATH') -ge 10 ]] || return
    # shellcheck disable=SC2016
    bash -c '. "$1"
        offers() {
            local wanted=$1
            shift
            COMP_WORDS=(sluicectl "$@") COMP_CWORD=$#
            _sluicectl
            [[ ${COMPREPLY[*]} == "$wanted" ]] || { echo "$*: ${COMPREPLY[*]}"; exit 1; }
        }
        offers "status" sta && offers "events" --socket /x/y eve && offers "gpu" clear g && offers "json" status -o "" &&
            offers "--follow" events --f && offers "show set" paths s' bash "$file/sluicectl.bash" || return
    if command -v zsh >/dev/null; then
        zsh -n "$file/_sluicectl"
    fi
}

if ! "$ctl" --help | grep -- --socket >/dev/null; then
    tap_skip_all "$("$ctl" status 2>&1 | head -1)"
fi
for name in a_healthy_host_is_said_to_be \
    what_is_wrong_is_said_by_all \
    json_is_what_the_agent_answers \
    followers_hear_of_it_at_once \
    an_agent_that_is_not_there_or_reads_nothing_is_said \
    doctor_works_without_an_agent \
    a_recording_is_replayed \
    wrong_words_are_refused \
    top_in_a_terminal_ends_by_q \
    hostile_requests_leave_the_agent_at_work \
    completion_knows_every_subcommand; do
    tap_case "$name" "$name"
    over
done
tap_done
