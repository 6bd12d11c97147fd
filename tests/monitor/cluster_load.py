#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Many simulated agents, one broker (mosquitto), two instances of sluiced --cluster, of which one is killed in the middle
of an incident: nothing is lost, nothing is done twice. Each agent is a connection of its own, with a last will, in one
process; their messages are those of monitor/publish.c.

usage: cluster_load.py SLUICED SLUICECTL [AGENTS]
"""
import asyncio
import json
import os
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

sluiced, ctl = (os.path.abspath(one) for one in sys.argv[1:3])
AGENTS = int(sys.argv[3]) if len(sys.argv) > 3 else 10000
STALL, DEAD, BAD = 5, 3, 50
HUNG = AGENTS * 47 // 100  # the rank that hangs: one a node


def skip_all(why):
    print(f"1..0 # SKIP {why}")
    sys.exit(0)


mosquitto = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
if mosquitto is None:
    skip_all("no broker is installed (package mosquitto)")
try:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard < AGENTS + 1000:
        resource.setrlimit(resource.RLIMIT_NOFILE, (AGENTS + 1000, AGENTS + 1000))
    else:
        resource.setrlimit(resource.RLIMIT_NOFILE, (AGENTS + 1000, hard))
except (ValueError, OSError):
    skip_all(f"{AGENTS + 1000} open files are not allowed here (ulimit -n)")

folder = tempfile.mkdtemp(prefix="sluice-load.")
os.chmod(folder, 0o755)
begun = []


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


BROKER, PORTS = free_port(), (free_port(), free_port())

# ---- MQTT 5, as much as an agent needs ----


def text(value):
    value = value.encode()
    return struct.pack(">H", len(value)) + value


def packet(kind, body):
    length, out = len(body), bytes([kind])
    while True:
        digit, length = length % 128, length // 128
        out += bytes([digit | (128 if length else 0)])
        if not length:
            return out + body


class Agent(asyncio.Protocol):
    """One node."""

    def __init__(self, number):
        self.number, self.name, self.transport = number, f"n{number:05}", None
        self.epoch, self.seq, self.sent, self.ready = int(time.time() * 1000), 0, 0, False
        self.health, self.verdicts, self.begun, self.since = "ok", [], 100, None

    def connection_made(self, transport):
        self.transport = transport
        will = json.dumps({"version": 1, "node": self.name, "epoch": self.epoch, "seq": 3, "time_ms": self.epoch, "alive": False})
        body = text("MQTT") + bytes([5, 0x02 | 0x04 | 0x08 | 0x20]) + struct.pack(">H", 60) + b"\0" + text(f"sluiced-{self.name}")
        body += b"\0" + text(f"sluice/v1/node/{self.name}/alive") + struct.pack(">H", len(will)) + will.encode()
        transport.write(packet(0x10, body))

    def data_received(self, data):
        if not self.ready and data[0] == 0x20:
            self.ready = True
            self.publish("alive", {"alive": True})
            self.status()
            self.ranks()

    def connection_lost(self, _error):
        self.ready = False

    def publish(self, topic, extra):
        self.seq += 1
        self.sent = self.sent % 65535 + 1
        message = {"version": 1, "node": self.name, "boot_id": "b", "epoch": self.epoch,
                   "seq": 2 if topic == "alive" else self.seq, "time_ms": int(time.time() * 1000), **extra}
        body = text(f"sluice/v1/node/{self.name}/{topic}") + struct.pack(">H", self.sent) + b"\0" + json.dumps(message).encode()
        if self.transport and not self.transport.is_closing():
            self.transport.write(packet(0x33, body))

    def status(self):
        self.publish("status", {"sources": {"status": {"health": self.health, "fresh": True, "why": "", "agent_version": "load",
                                                       "verdicts": self.verdicts}}})

    def ranks(self):
        comm = {"id": "abc1", "rank": self.number, "size": AGENTS, "lost": 0, "collectives": self.begun, "ended": 100, "broken": False}
        rank = {"pid": 4711, "job": "train", "program": "load", "rank": self.number, "size": AGENTS, "communicators": [comm], "paths": []}
        if self.since:
            rank["waits"] = {"communicator": "abc1", "operation": "allreduce", "number": 101, "elements": 1024, "type": "f32",
                             "peer": (self.number + 1) % AGENTS, "doing": "waits for a message of", "for_seconds": time.time() - self.since,
                             "idle_seconds": 0}
        self.publish("ranks", {"sources": {"ranks": {"ranks": [rank]}}})


# ---- the cluster ----


def begin(command, name):
    with open(f"{folder}/{name}.out", "w", encoding="utf-8") as out:
        begun.append(subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL))
    return begun[-1]


def write(name, what, mode=0o644):
    with open(f"{folder}/{name}", "w", encoding="utf-8") as out:
        out.write(what)
    os.chmod(f"{folder}/{name}", mode)
    return f"{folder}/{name}"


def instance(number):
    conf = write(f"i{number}.conf", f"[mqtt]\nbroker = 127.0.0.1:{BROKER}\n[cluster]\nhttp = 127.0.0.1:{PORTS[number]}\ninstance = i{number}\n"
                 f"stall_s = {STALL}\nconfirm_s = 2\nsilent_s = 120\ncases = {folder}/cases{number}\ncommand = {folder}/act {folder}\n")
    return begin([sluiced, "--cluster", "--config", conf], f"i{number}")


def get(path, number):
    with urllib.request.urlopen(f"http://127.0.0.1:{PORTS[number]}{path}", timeout=20) as answer:
        return json.load(answer)


async def ask(path, number):
    return await asyncio.get_running_loop().run_in_executor(None, get, path, number)


async def until(seconds, what):
    since, got, why = time.monotonic(), None, None
    while time.monotonic() - since < seconds:
        try:
            got, why = await what(), None
        except OSError as error:
            why = error
        if got:
            return time.monotonic() - since
        await asyncio.sleep(0.25)
    raise AssertionError(f"not within {seconds} s: {why or got}")


def calls():
    """Each call of the command: its key, and what of."""
    out = []
    for name in os.listdir(f"{folder}/calls"):
        with open(f"{folder}/calls/{name}", encoding="utf-8") as call:
            out.append(call.read().rstrip("\n").split("|"))
    return out


def memory(process):
    with open(f"/proc/{process.pid}/status", encoding="utf-8") as status:
        return int(re.search(r"VmHWM:\s+(\d+)", status.read())[1]) // 1024


def cpu(process):
    with open(f"/proc/{process.pid}/stat", encoding="utf-8") as stat:
        return sum(map(int, stat.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")


count, failed = 0, 0


def case(good, name, *notes):
    global count, failed
    count += 1
    failed |= not good
    print(f"{'ok' if good else 'not ok'} {count} - {name}", *(f"\n# {note}" for note in notes), flush=True)


async def run():
    loop = asyncio.get_running_loop()
    agents = [Agent(i) for i in range(AGENTS)]
    instances = [instance(0), instance(1)]
    since = time.monotonic()
    for first in range(0, AGENTS, 200):
        await asyncio.gather(*(loop.create_connection(lambda a=agent: a, "127.0.0.1", BROKER) for agent in agents[first:first + 200]))
    while not all(agent.ready for agent in agents):
        await asyncio.sleep(0.1)
    joined = time.monotonic() - since

    async def all_ok(number):
        return (await ask("/v1/cluster", number))["nodes"]["ok"] == AGENTS and (await ask("/v1/cluster", number))["ranks"] == AGENTS
    for number in 0, 1:
        await until(90, lambda n=number: all_ok(n))
    case(True, "both_instances_see_all_agents", f"{AGENTS} agents connected in {joined:.1f} s, both instances saw all after {time.monotonic() - since:.1f} s")
    states = [await ask("/v1/cluster", number) for number in (0, 1)]
    case(all(not one["verdicts_open"] for one in states), "nobody_is_accused_who_is_well",
         *(f"instance {i}: {memory(instances[i])} MiB, {cpu(instances[i]):.1f} s of processor, rules take {one['judged_us'] / 1000:.0f} ms, {one['mqtt']['messages']} messages"
           for i, one in enumerate(states)))

    # The incident: a rank hangs and all others wait for it, some nodes die, some agents find something wrong.
    ill, ill_at = time.monotonic(), time.time()
    for agent in agents:
        if agent.number != HUNG:
            agent.begun, agent.since = 101, time.time()
        agent.ranks()
        if agent.number % 100 == 0:
            await asyncio.sleep(0)
    dead = agents[10:10 + DEAD]
    for agent in dead:
        agent.transport.abort()
    for number, agent in enumerate(agents[100:100 + BAD]):
        agent.health = "bad"
        agent.verdicts = [{"id": 7, "opened_ms": int(time.time() * 1000), "kind": "port", "subject": f"mlx5_0:{number}", "check": "link_down", "class": "NICDown",
                           "fatal": True, "acked": False, "text": "the port is down"}]
        agent.status()

    async def live():
        """What agents say while it lasts: how long they wait, in turns, and how they are."""
        turn = 0
        while True:
            for agent in agents[turn % 20::20]:
                if agent.ready and agent.since:
                    agent.ranks()
            turn += 1
            await asyncio.sleep(0.5)
    talk = asyncio.create_task(live())
    await until(60, lambda: asyncio.sleep(0, len(os.listdir(f"{folder}/calls")) >= 8))
    instances[0].send_signal(signal.SIGKILL)
    instances[0].wait()
    killed_after, before = time.monotonic() - ill, len(os.listdir(f"{folder}/calls"))

    async def all_done():
        found = (await ask("/v1/verdicts?open=1", 1))["verdicts"]
        wanted = {one["id"] + "-opened" for one in found} | {one["id"] + "-isolate" for one in found if one["isolate"]}
        return len(found) == 1 + DEAD + BAD and wanted <= {one[0] for one in calls()}
    took = await until(120, all_done)
    await asyncio.sleep(3)
    done = calls()
    keys = [one[0] for one in done]
    what = sorted((one[3], one[5] or one[4]) for one in done)
    verdicts = (await ask("/v1/verdicts?open=1", 1))["verdicts"]
    hung = [one for one in verdicts if one["job"] == "train"]
    isolates = sum(one["isolate"] for one in verdicts)
    case(len(hung) == 1 and hung[0]["object"].startswith(f"rank {HUNG} "), "the_hung_rank_alone_is_accused_of_the_hang", hung[:2] and hung[0]["object"] or hung[:3],
         *(f"open {one['opened_ms'] / 1000 - ill_at:.1f} s after the incident began, of which {STALL} s are the stall and 2 s confirm_s; {one['probability'] * 100:.0f} %" for one in hung))

    async def kept():
        return all(one["bundle"] for one in (await ask("/v1/verdicts?open=1", 1))["verdicts"])
    since = time.monotonic()
    await until(60, kept)
    waited, path = time.monotonic() - since, f"{folder}/cases1/{hung[0]['id']}.case"
    done_by = subprocess.run([ctl, "replay", path], capture_output=True, text=True, check=False)
    replayed = time.monotonic() - since - waited
    folder_bytes = sum(os.stat(f"{folder}/cases1/{name}").st_size / os.stat(f"{folder}/cases1/{name}").st_nlink for name in os.listdir(f"{folder}/cases1"))
    case(done_by.returncode == 0, "what_led_to_each_verdict_is_kept_and_gives_it_again",
         f"all kept {waited:.1f} s after that; the hang's has {os.stat(path).st_size / 1e6:.1f} MB, all {len(os.listdir(f'{folder}/cases1'))} have {folder_bytes / 1e6:.1f} MB; replayed in "
         f"{replayed:.1f} s: {done_by.stdout.strip()}{done_by.stderr[:300]}")
    expected = {agent.name for agent in dead} | {agent.name for agent in agents[100:100 + BAD]} | {agents[HUNG].name}
    case({one[5] for one in done} == expected and len(set(keys)) == 1 + DEAD + BAD + isolates, "nothing_is_lost_when_an_instance_is_killed",
         f"killed {killed_after:.1f} s after the incident began, when {before} commands had been called; all {len(set(keys))} were done {took:.1f} s later")
    effects = os.listdir(f"{folder}/effects")
    twice = sorted({key for key in keys if keys.count(key) > 1})
    case(len(effects) == 1 + DEAD + BAD + isolates and len(twice) <= 1, "nothing_is_done_twice",
         f"{len(keys)} calls for {len(set(keys))} keys; called again after the kill: {twice or 'none'}", *(what[:3] if failed else []))

    # A new instance finds what was done, and does none of it again.
    instances.append(instance(0))
    await until(60, lambda: asyncio.sleep(0, True))
    await until(90, all_again)
    await asyncio.sleep(8)
    ids = [{one["id"] for one in (await ask("/v1/verdicts?open=1", number))["verdicts"]} for number in (0, 1)]
    case(ids[0] == ids[1] and len(ids[0]) == 1 + DEAD + BAD, "a_new_instance_has_the_same_verdicts_by_the_same_ids", f"{len(ids[0])} and {len(ids[1])}")
    case(len(calls()) == len(done), "and_repeats_nothing_that_was_done", f"{len(calls()) - len(done)} more calls")
    case(True, "figures", *(f"instance {i}: at most {memory(instances[k])} MiB, {cpu(instances[k]):.1f} s of processor"
                            for i, k in ((1, 1), (0, 2))), f"broker: {memory(begun[0])} MiB, {cpu(begun[0]):.1f} s of processor")
    talk.cancel()


async def all_again():
    return (await ask("/v1/cluster", 0))["verdicts_open"] == 1 + DEAD + BAD

try:
    for name in "calls", "effects":
        os.mkdir(f"{folder}/{name}")
    # Each call is kept; its effect is by its key, as a command's should be.
    write("act", '#!/bin/sh\nd=$1\nf=$(mktemp "$d/calls/XXXXXXXX")\nprintf "%s|%s|%s|%s|%s|%s|%s|%s\\n" "$2" "$3" "$4" "$5" "$6" "$7" "$8" "$PPID" >"$f"\n'
          'mkdir "$d/effects/$2" 2>/dev/null\nsleep 0.05\n', 0o755)
    conf = write("mosquitto.conf", f"listener {BROKER} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\npersistence false\nlog_type error\nuser root\n")
    begin([mosquitto, "-c", conf], "broker")
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", BROKER), 1).close()
            break
        except OSError:
            time.sleep(0.05)
    asyncio.run(run())
except AssertionError as error:
    case(False, "it_goes_on", str(error))
    for name in "broker", "i0", "i1":
        with open(f"{folder}/{name}.out", encoding="utf-8") as out:
            print("".join(f"# {name}: {line}" for line in out.readlines()[-4:]))
finally:
    for process in begun:
        if process.poll() is None:
            process.kill()
        process.wait()
    shutil.rmtree(folder, ignore_errors=True)
print(f"1..{count}")
sys.exit(failed)
