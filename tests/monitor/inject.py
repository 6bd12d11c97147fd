#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Injects faults between two hosts of namespaces while ranks run, and judges what the agents of both say.

usage: inject.py --sluiced PROGRAM --rank PROGRAM [--relay PROGRAM] [--rounds N] [--seed N] [--from N] [--only NAMES]
                 [--report FILE] [--tap] [--keep] [--list]

A round is drawn from the seed and its number, so that a campaign can be run in parts and a round again:
  1. new stores: conditions hold for minutes by design, and a round must not inherit them; the agents start, then the ranks
  2. a quiet period, as long as the fault will be, of a workload that is drawn: nothing may be said
  3. the fault: what is expected must be said in time, and beside it only what is true
Flaps come six in a round (--flaps), each after a quiet period of its length, as each is told by an event of its own.

--report FILE keeps a line of JSON for each round; one that has it already is not run again. --tap: a case per kind of fault.
Needs root, Linux's namespaces, ip, tc, nft and ethtool; what else a fault needs, and is not here, skips that fault.
"""
import argparse
import collections
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import faults  # noqa: E402
from faults import LINK, Says, log_uniform  # noqa: E402
from host import Group, Host, Unable, join_by_veth, now_ns  # noqa: E402

PORT = 7715
FLAP_BOUND_MS = 100
BUSY_SHARE = 0.15      # of its time a rank waits for a processor: by our own measure it is starved
POLL_S = 0.02


# ---- what runs in the hosts ----

class Bed:
    """Two hosts and their link; in each an agent and a rank. The hosts stay for all rounds."""

    def __init__(self, args, folder, link):
        self.args, self.folder, self.link = args, os.path.join(folder, link), link
        os.makedirs(self.folder)
        self.hosts, self.agents, self.ranks, self.churn = [], [], [], []
        self.relay = self.memory_group = None
        self.said, self.broken = [], []
        self.loads = collections.defaultdict(list)
        self.job = 0
        self.dataset = os.path.join(folder, "dataset")
        for number, name in enumerate("AB", 1):
            self.hosts.append(Host(name, number, self.folder))
        if link == "veth":
            join_by_veth(*self.hosts)
        else:
            self.join_by_relay()
        for host in self.hosts:
            host.wait_for_carrier()
            # After a long fault connections go on within a second, instead of after twice its time; so they try more often
            # before they give up.
            host.run("sysctl", "-qw", "net.ipv4.tcp_rto_max_ms=1000", "net.ipv4.tcp_retries2=200", may_fail=True)
        for host in self.hosts:
            host.watch()
        self.sampler = threading.Thread(target=self.sample, daemon=True)
        self.sampler.start()

    def join_by_relay(self):
        if self.args.relay is None:
            raise Unable("the relay between TAPs is not given (--relay)")
        self.relay = subprocess.Popen([self.args.relay, str(self.hosts[0].init), str(self.hosts[1].init), LINK], stdout=subprocess.PIPE, text=True)
        if self.relay.stdout.readline().strip() != "ready":
            raise Unable("no relay between two TAPs can be had here: no /dev/net/tun?")
        for host in self.hosts:
            host.run("ip", "link", "set", "lo", "up")
            host.run("ip", "addr", "add", f"{host.address}/24", "dev", LINK)
            host.run("ip", "link", "set", LINK, "up")

    def other(self, host):
        return self.hosts[1 - self.hosts.index(host)]

    # ---- agents ----

    def agents_begin(self):
        self.said.clear()
        for host in self.hosts:
            config = os.path.join(self.folder, f"{host.name}.conf")
            store = os.path.join(self.folder, f"{host.name}.db")
            for path in (store, store + "-wal", store + "-shm"):
                if os.path.exists(path):
                    os.unlink(path)
            with open(config, "w") as file:
                file.write(self.configuration(store, host))
            agent = host.start([self.args.sluiced, "--config", config], on_line=lambda at, line, host=host: self.take(host, at, line))
            self.agents.append(agent)
            while not os.path.exists(store):
                if agent.wait(0.02) is not None:
                    raise Unable(f"sluiced ended: {agent.text()}")
        time.sleep(0.2)

    def configuration(self, store, host):
        """All that the program knows, but for what is of the machine and not of a host: its log, its devices."""
        ours = {"store.path": store, "output.events": "-", "sources.kmsg": "off", "sources.rdma": "off", "sources.pcie": "off",
                "sources.gpu": "off", "sources.rdma_resources": "off", "api.socket": os.path.join(self.folder, f"{host.name}.sock"), "output.textfile": os.path.join(self.folder, f"{host.name}.prom")}
        for setting in self.args.set or []:
            key, _, value = setting.partition("=")
            ours[key] = value
        printed = subprocess.run([self.args.sluiced, "--print-config"], capture_output=True, text=True, check=True).stdout
        section, lines = "", []
        for line in printed.splitlines():
            if line.startswith("["):
                section = line.strip("[]")
                lines.append(line)
            key = re.match(r"#([a-z0-9_]+) = ?", line)
            if key and f"{section}.{key[1]}" in ours:
                lines.append(f"{key[1]} = {ours[f'{section}.{key[1]}']}")
        return "\n".join(lines) + "\n"

    def take(self, host, at, line):
        """A line of an agent: an accusation is a condition that is believed, or more evidence of one that is."""
        try:
            said = json.loads(line)
        except ValueError:
            self.broken.append(f"{host.name}: {line}")
            return
        if said.get("to") == "bad":
            self.said.append({"at": at, "host": host.name, "kind": said["kind"], "subject": said["subject"], "check": said["check"],
                              "type": said["type"], "text": said["text"], "id": said["id"]})

    def agents_end(self):
        for agent in self.agents:
            if agent.end() != 0:
                self.broken.append(f"the agent of {agent.host.name} ended with {agent.status}: {agent.text()[-500:]}")
        self.agents.clear()

    # ---- ranks ----

    def rank_command(self, host, options):
        command = [self.args.rank] + [self.dataset if option == "DATASET" else option for option in options]
        if "DATASET" in options:
            self.memory_group = Group("memory", f"sluice-inject-{os.getpid()}")
            command = ["sh", "-c", f"echo $$ >{self.memory_group.path}/cgroup.procs && exec \"$@\"", "sh"] + command
        return command

    def make_dataset(self):
        if not os.path.exists(self.dataset):
            with open(self.dataset, "wb") as file:
                for _ in range(faults.DATASET_BYTES >> 20):
                    file.write(os.urandom(1 << 20))
                file.flush()
                os.fsync(file.fileno())
        with open(self.dataset, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def ranks_begin(self, workloads):
        if any("DATASET" in options for options in workloads):
            self.make_dataset()
        for host in self.hosts:
            host.wait_for_carrier()
        self.job += 1
        self.workloads = workloads
        self.may_end = False
        ranks = []
        for rank, host in enumerate(self.hosts):
            env = {"SLUICE_RANK": str(rank), "SLUICE_SIZE": "2", "SLUICE_ROOT": f"{self.hosts[0].address}:{PORT + self.job % 1000}",
                   "SLUICE_JOB": f"inject-{self.job}", "SLUICE_SECRET": "only-for-this-test", "SLUICE_TRANSPORT": "tcp",
                   "SLUICE_INTERFACE": LINK, "SLUICE_TIMEOUT_MS": "120000", "SLUICE_SPIN_US": "20"}
            ranks.append(host.start(self.rank_command(host, workloads[rank]), env))
        deadline = time.monotonic() + 20
        while not all("ready" in rank.text() for rank in ranks):
            if time.monotonic() > deadline or any(rank.wait(0) is not None for rank in ranks):
                for rank in ranks:
                    rank.end(0)
                raise Unable("the ranks did not begin: " + "; ".join(rank.text()[-300:] for rank in ranks))
            time.sleep(POLL_S)
        self.ranks = ranks

    def ranks_end(self):
        """Well: rank 0 is asked, which tells the other."""
        ranks, self.ranks = self.ranks, []
        if not ranks:
            return
        ranks[0].signal(signal.SIGTERM)
        for rank in ranks:
            if rank.wait(0 if self.may_end and any(r.status is not None for r in ranks) else 5) is None:
                rank.signal(signal.SIGKILL)
                rank.wait(3)
                if not self.may_end:
                    self.broken.append(f"rank {ranks.index(rank)} did not end")
            elif rank.status != 0 and not self.may_end:
                self.broken.append(f"rank {ranks.index(rank)} ended with {rank.status}: {rank.text()[-300:]}")
        if self.memory_group is not None:
            self.memory_group.close()
            self.memory_group = None

    def wait_until_moving(self, seconds=60):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            before = self.hosts[0].bytes_moved()
            time.sleep(0.25)
            if self.hosts[0].bytes_moved() - before > 1 << 20:
                return True
        return False

    def measure_rate(self, seconds=1.0):
        before = self.hosts[0].bytes_moved()
        time.sleep(seconds)
        self.bits_per_s = (self.hosts[0].bytes_moved() - before) * 8 / seconds

    # ---- our own measure of what the machine does to the ranks ----

    def sample(self):
        last = {}
        while True:
            time.sleep(0.5)
            for rank in list(self.ranks):
                now, (_, wait) = now_ns(), rank.schedstat()
                before = last.get(rank.outer)
                last = {**last, rank.outer: (now, wait)} if len(last) < 64 else {rank.outer: (now, wait)}
                if before is not None and now > before[0]:
                    self.loads[rank.pid, rank.host.name].append((now, (wait - before[1]) / (now - before[0])))

    def waited_share(self, host, pid, since, until):
        """The largest share of half a second that a rank waited for a processor."""
        return max((share for at, share in self.loads[pid, host] if since <= at <= until), default=0)

    def close(self):
        for process in self.churn + self.ranks:
            process.signal(signal.SIGKILL)
        self.agents_end()
        if self.relay is not None:
            self.relay.send_signal(signal.SIGCONT)
            self.relay.kill()
            self.relay.wait()
        if self.memory_group is not None:
            self.memory_group.close()
        for host in self.hosts:
            host.close()


# ---- one round ----

class Round:
    def __init__(self, bed, number, seed, kind):
        self.bed, self.number, self.kind = bed, number, kind
        self.rng = random.Random(f"{seed}:{number}")
        self.result = {"round": number, "seed": seed, "fault": kind, "quiet": [], "injections": [], "false": [], "disturbed": []}

    def judge_quiet(self, since, seconds, workload):
        """All that was said since then is false, but for what the machine did, by our own measure."""
        said = [s for s in list(self.bed.said) if s["at"] >= since]
        disturbed = [s for s in said if self.is_disturbance(s)]
        wrong = [s for s in said if s not in disturbed]
        self.result["quiet"].append({"seconds": round(seconds, 3), "workload": workload, "false": len(wrong), "disturbed": len(disturbed)})
        self.result["false"] += [{**s, "during": f"quiet ({workload})"} for s in wrong]
        self.result["disturbed"] += disturbed
        return now_ns()

    def is_disturbance(self, said):
        if said["check"] != "starved" or not said["subject"].startswith("pid "):
            return False
        return self.bed.waited_share(said["host"], int(said["subject"][4:]), said["at"] - 6e9, said["at"]) >= BUSY_SHARE

    def churn(self, seconds):
        """Ranks that begin, work and end well, again and again."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.bed.ranks_begin((faults.STEADY, faults.STEADY))
            time.sleep(min(0.7, max(0, until - time.monotonic())))
            self.bed.ranks_end()

    def quiet(self, seconds, workloads):
        """Of a workload that is drawn: that of the fault, or another one before."""
        since = now_ns()
        name = self.rng.choice(["the fault's", "the fault's", "steady", "idle", "compute", "begin and end"])
        if name == "begin and end":
            self.churn(seconds)
        elif name != "the fault's":
            self.bed.ranks_begin((faults.WORKLOADS[name],) * 2)
            time.sleep(seconds)
            self.bed.ranks_end()
        self.bed.ranks_begin(workloads)
        return since, name

    def wait(self, fault, seconds):
        until = now_ns() + int(seconds * 1e9)
        while now_ns() < until:
            if hasattr(fault, "poll"):
                fault.poll(self.bed)
            time.sleep(POLL_S)

    def run(self):
        self.bed.agents_begin()
        try:
            if self.kind == "flap":
                self.run_flaps()
            else:
                self.run_fault(self.fault)
        finally:
            self.bed.ranks_end()
            self.bed.agents_end()
            self.bed.loads.clear()
        self.result["broken"], self.bed.broken = self.bed.broken, []
        return self.result

    def run_fault(self, fault):
        since, name = self.quiet(fault.seconds, fault.workloads)
        try:
            fault.prepare(self.bed)
            self.bed.measure_rate(fault.settle)
            if name == "the fault's":
                time.sleep(max(0, fault.seconds - fault.settle))
            since = self.judge_quiet(since, fault.seconds, name)
            fault.begin(self.bed)
            begun, expected, allowed = since, fault.expect(self.bed), fault.allow(self.bed)
            self.wait(fault, fault.seconds)
            self.wait_until_told(expected, begun)
            fault.end(self.bed)
            time.sleep(0.3)
        finally:
            fault.end(self.bed)
            fault.restore(self.bed)
        problem = fault.problem(self.bed)
        self.judge(fault, begun, expected, allowed, problem)

    def wait_until_told(self, expected, begun):
        """Where bounds are longer than the fault is watched (--slack)."""
        for pattern, within in expected:
            while (now_ns() - begun < within * 1e9 * self.bed.args.slack
                   and not any(s["at"] >= begun and pattern.matches(s) for s in list(self.bed.said))):
                time.sleep(POLL_S)

    def judge(self, fault, begun, expected, allowed, problem):
        said = [s for s in list(self.bed.said) if s["at"] >= begun]
        told = []
        for pattern, within in expected:
            hits = [s for s in said if pattern.matches(s)]
            told.append({"what": str(pattern), "within_s": within, "ms": round((hits[0]["at"] - begun) / 1e6) if hits else None,
                         "text": hits[0]["text"] if hits else ""})
        missed = [t for t in told if t["ms"] is None or t["ms"] > t["within_s"] * 1000 * self.bed.args.slack]
        beside = [s for s in said if not any(p.matches(s) for p, _ in expected)]
        true = [s for s in beside if any(p.matches(s) for p in allowed)]
        disturbed = [s for s in beside if s not in true and self.is_disturbance(s)]
        wrong = [s for s in beside if s not in true and s not in disturbed]
        self.result["injections"].append({"fault": self.kind, "values": fault.values, "told": told, "missed": len(missed) if problem is None else 0,
                                          "problem": problem, "consequences": sorted({f"{s['host']}: {s['subject']} {s['check']}" for s in true}),
                                          "false": len(wrong)})
        self.result["false"] += [{**s, "during": f"{self.kind} {fault.values}"} for s in wrong]
        self.result["disturbed"] += disturbed

    # ---- flaps ----

    def run_flaps(self):
        longest = self.bed.args.longest_flap_s * 1000
        since = now_ns()
        self.bed.ranks_begin((faults.STEADY, faults.STEADY))
        time.sleep(1)
        for _ in range(self.bed.args.flaps):
            ms = log_uniform(self.rng, 10, longest)
            host = self.bed.hosts[self.rng.randrange(2)]
            time.sleep(max(0.5, ms / 1000 - (now_ns() - since) / 1e9))
            since = self.judge_quiet(since, ms / 1000, "steady")
            self.flap(host, ms)
            since = now_ns()

    def flap(self, host, ms):
        other, said_from = self.bed.other(host), now_ns()
        _, down = host.set_link(False)
        until = down + int(ms * 1e6)
        time.sleep(max(0, (until - now_ns()) / 1e9 - 0.001))
        while now_ns() < until:
            pass
        up, _ = host.set_link(True)
        real_ms = (up - down) / 1e6
        pattern = Says(other.name, "port", LINK, "link_flap")
        hits, deadline = [], time.monotonic() + 1.5
        while not hits and time.monotonic() < deadline:
            time.sleep(0.002)
            hits = [s for s in list(self.bed.said) if s["at"] >= said_from and pattern.matches(s)]
        self.bed.wait_until_moving()
        time.sleep(1.2)  # a period: what was lost while it was down is counted by then
        said = [s for s in list(self.bed.said) if s["at"] >= said_from]
        allowed = [faults.path_to(self.bed, h, *faults.PATH) for h in self.bed.hosts]
        if real_ms >= 900:
            allowed.append(Says(other.name, "port", LINK, "link_down"))
        beside = [s for s in said if not pattern.matches(s)]
        true = [s for s in beside if any(p.matches(s) for p in allowed)]
        wrong = [s for s in beside if s not in true and not self.is_disturbance(s)]
        # Once each: one more would be a flap that was not.
        wrong += [s for s in said if pattern.matches(s)][1:]
        told = {"what": str(pattern), "within_s": FLAP_BOUND_MS / 1000, "ms": None, "text": hits[0]["text"] if hits else ""}
        missed = not hits
        if hits:
            told["ms"] = round((hits[0]["at"] - up) / 1e6, 2)
            lasted = re.search(r"(\d+) ms the last time", told["text"])
            told["lasted_ms"] = int(lasted[1]) if lasted else None
            told["bound_ms"] = round(max(10, real_ms / 10), 2)
            slack = self.bed.args.slack
            missed = (told["ms"] > slack * FLAP_BOUND_MS or lasted is None or abs(told["lasted_ms"] - real_ms) > slack * told["bound_ms"])
        seen = [(round((at - down) / 1e6, 1), has) for at, has in list(other.carrier) if at >= down]
        told["kernel_told_ms"] = seen[:4]
        problem = self.kernel_was_late(other, down, up, real_ms, told) if missed else None
        self.result["injections"].append({"fault": "flap", "values": {"ms": round(real_ms, 2), "host": host.number - 1}, "told": [told],
                                          "missed": int(missed and problem is None), "problem": problem, "consequences": sorted({f"{s['host']}: {s['subject']} {s['check']}" for s in true}), "false": len(wrong)})
        self.result["false"] += [{**s, "during": f"flap of {real_ms:.0f} ms"} for s in wrong]


    def kernel_was_late(self, other, down, up, real_ms, told):
        """By a socket of our own: when the kernel told of it. None: in time, and the agent is to blame."""
        seen = [(at, has) for at, has in list(other.carrier) if at >= down]
        at_down = next((at for at, has in seen if not has), None)
        at_up = next((at for at, has in seen if has and at_down is not None and at >= at_down), None)
        bound_ms = self.bed.args.slack * FLAP_BOUND_MS
        if told["ms"] is not None and told["ms"] <= 1100 and (at_down is None or at_down >= up):
            return f"the kernel told nothing of it before its end, and its counts are read once a second (told after {told['ms']:.0f} ms)"
        if told["ms"] is None or told["ms"] - ((at_up or up) - up) / 1e6 > bound_ms:
            return None
        if at_up is None:
            return f"the kernel told of both changes at once (duration told: {told['lasted_ms']} ms)"
        late = max(at_down - down, at_up - up) / 1e6
        if late >= told["bound_ms"] / 2 and abs((told["lasted_ms"] or 0) - (at_up - at_down) / 1e6) <= told["bound_ms"]:
            return f"the kernel told of it {late:.0f} ms late (duration told: {told['lasted_ms']} ms)"
        return None


# ---- the campaign ----

class Campaign:
    def __init__(self, args):
        self.args = args
        self.folder = tempfile.mkdtemp(prefix="sluice-inject-")
        self.beds, self.lacking = {}, {}
        self.kinds = {c.name: c for c in faults.ALL}
        self.wanted = args.only.split(",") if args.only else ["flap"] + list(self.kinds)
        unknown = [name for name in self.wanted if name != "flap" and name not in self.kinds]
        if unknown:
            sys.exit(f"inject.py: there is no fault '{unknown[0]}'; there are: flap {' '.join(self.kinds)}")
        self.results = []

    def open_beds(self):
        """All of them before the first thread, as they are forked."""
        links = {"veth" if name == "flap" else self.kinds[name].link for name in self.wanted}
        for link in sorted(links):
            try:
                self.beds[link] = Bed(self.args, self.folder, link)
            except Unable as why:
                self.lacking[link] = str(why)
        if not self.beds:
            raise Unable("; ".join(self.lacking.values()))

    def order(self, rounds):
        """Each kind as often as any other, flaps more often; in an order of the seed."""
        deck, order = [], []
        rng = random.Random(self.args.seed)
        while len(order) < rounds:
            if not deck:
                deck = list(self.wanted)
                rng.shuffle(deck)
            order.append(deck.pop())
        return order

    def already(self):
        done = {}
        if self.args.report and os.path.exists(self.args.report):
            with open(self.args.report) as file:
                for line in file:
                    result = json.loads(line)
                    if result["seed"] == self.args.seed:
                        done[result["round"]] = result
        return done

    def one(self, number, kind):
        link = "veth" if kind == "flap" else self.kinds[kind].link
        if link not in self.beds:
            return {"round": number, "seed": self.args.seed, "fault": kind, "skipped": self.lacking[link]}
        current = Round(self.beds[link], number, self.args.seed, kind)
        if kind != "flap":
            current.fault = self.kinds[kind](current.rng)
            current.fault.seconds = min(current.fault.seconds, self.args.seconds)
            why = current.fault.lacks()
            if why is not None:
                return {"round": number, "seed": self.args.seed, "fault": kind, "skipped": why}
        try:
            return current.run()
        except Unable as why:
            return {"round": number, "seed": self.args.seed, "fault": kind, "skipped": str(why), "broken": self.beds[link].broken}

    def injected(self):
        return sum(1 for result in self.results for injection in result.get("injections", []) if injection["problem"] is None)

    def run(self):
        done = self.already()
        for number, kind in list(enumerate(self.order(self.args.rounds)))[self.args.first:]:
            if self.args.until and self.injected() >= self.args.until:
                break
            if number in done:
                self.results.append(done[number])
                continue
            result = self.one(number, kind)
            self.results.append(result)
            if self.args.report:
                with open(self.args.report, "a") as file:
                    file.write(json.dumps(result) + "\n")
            self.tell(result)

    def tell(self, result):
        mark = "# " if self.args.tap else ""
        if "skipped" in result:
            print(f"{mark}{result['round']}: {result['fault']}: skipped: {result['skipped']}", flush=True)
            return
        for injection in result["injections"]:
            told = ", ".join(f"{t['ms']} ms" for t in injection["told"])
            print(f"{mark}{result['round']}: {result['fault']} {injection['values']}: "
                  f"{'MISSED ' if injection['missed'] else ''}{injection['problem'] or told}; beside: {injection['consequences']}", flush=True)
        for said in result["false"]:
            print(f"{mark}   FALSE during {said['during']}: {said['host']}: {said['subject']} {said['check']}: {said['text']}", flush=True)
        for said in result["disturbed"]:
            print(f"{mark}   the machine was busy: {said['host']}: {said['subject']} {said['check']}", flush=True)
        for said in result["broken"]:
            print(f"{mark}   BROKEN: {said}", flush=True)

    def close(self):
        for bed in self.beds.values():
            bed.close()
        if self.args.keep:
            print(f"# kept: {self.folder}")
        else:
            shutil.rmtree(self.folder, ignore_errors=True)


def summary(results):
    """Rows of the report: what, injections, told in time, delay in ms (median, worst), false, and consequences."""
    kinds = collections.OrderedDict()
    for result in results:
        for injection in result.get("injections", []):
            if injection["problem"] is None:
                kinds.setdefault(injection["fault"], []).append(injection)
    rows = []
    for kind, injections in sorted(kinds.items()):
        delays = [t["ms"] for i in injections for t in i["told"] if t["ms"] is not None]
        rows.append((kind, len(injections), sum(1 for i in injections if not i["missed"]),
                     f"{statistics.median(delays):.0f}" if delays else "-", f"{max(delays):.0f}" if delays else "-", sum(i["false"] for i in injections)))
    return rows


def print_summary(results, mark=""):
    print(f"{mark}{'fault':18} {'injected':>8} {'told':>6} {'median ms':>10} {'worst ms':>9} {'false':>6}")
    for row in summary(results):
        print(f"{mark}{row[0]:18} {row[1]:8} {row[2]:6} {row[3]:>10} {row[4]:>9} {row[5]:6}")
    quiet = [q for result in results for q in result.get("quiet", [])]
    print(f"{mark}{len(quiet)} quiet periods, {sum(q['seconds'] for q in quiet):.0f} s: {sum(q['false'] for q in quiet)} false accusations, "
          f"{sum(1 for q in quiet if q['disturbed'])} in which the machine kept a rank from its processor, by our own measure")
    for kind, why in sorted({(result["fault"], result["skipped"]) for result in results if "skipped" in result}):
        print(f"{mark}skipped: {kind}: {why}")


def print_tap(results):
    """A case per kind: all told in time, and nothing false."""
    names = list(collections.OrderedDict.fromkeys(result["fault"] for result in results))
    bad = 0
    for number, name in enumerate(names, 1):
        mine = [result for result in results if result["fault"] == name]
        ran = [result for result in mine if "skipped" not in result]
        case = f"{name}_is_told_in_time_and_nothing_else"
        if not ran:
            print(f"ok {number} - {case} # SKIP {mine[0]['skipped']}")
            continue
        good = all(not result["false"] and not result["broken"] and not any(i["missed"] for i in result["injections"]) for result in ran)
        bad += not good
        print(f"{'ok' if good else 'not ok'} {number} - {case}")
    print(f"1..{len(names)}")
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluiced")
    parser.add_argument("--rank")
    parser.add_argument("--relay")
    parser.add_argument("--rounds", type=int, default=14)
    parser.add_argument("--first", "--from", type=int, default=0, help="the number of the first round")
    parser.add_argument("--until", type=int, default=0, help="end after so many injections")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="faults, between commas")
    parser.add_argument("--seconds", type=float, default=60, help="a fault lasts no longer")
    parser.add_argument("--flaps", type=int, default=6, help="in a round of them")
    parser.add_argument("--longest-flap-s", type=float, default=25)
    parser.add_argument("--report", help="a line of JSON per round")
    parser.add_argument("--slack", type=float, default=1, help="multiplies the bounds, for machines with much else to do")
    parser.add_argument("--nice", type=int, default=-15, help="so that what else this machine does disturbs little (-15)")
    parser.add_argument("--set", action="append", help="SECTION.KEY=VALUE of the agents' configuration")
    parser.add_argument("--tap", action="store_true")
    parser.add_argument("--keep", action="store_true", help="stores and configurations of the last round")
    parser.add_argument("--list", action="store_true", help="the faults")
    parser.add_argument("--summary", metavar="FILE", help="of a report")
    args = parser.parse_args()
    if args.list:
        print("flap               the link goes down and comes back, 10 ms to 25 s")
        print("\n".join(f"{c.name:18} {c.what}" for c in faults.ALL))
        return 0
    if args.summary:
        with open(args.summary) as file:
            print_summary([json.loads(line) for line in file])
        return 0
    if not args.sluiced or not args.rank:
        parser.error("--sluiced and --rank are needed")
    if os.geteuid() != 0:
        print("1..0 # SKIP namespaces need root")
        return 0
    # Also where it was started in the background, which ignores what a terminal sends.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:  # what runs in the hosts inherits it, hogs too
        os.setpriority(os.PRIO_PROCESS, 0, args.nice)
    except PermissionError:
        pass
    campaign = Campaign(args)
    try:
        campaign.open_beds()
        campaign.run()
    except Unable as why:
        print(f"1..0 # SKIP {why}" if args.tap else f"inject.py: {why}")
        return 0 if args.tap else 1
    except KeyboardInterrupt:
        pass
    finally:
        campaign.close()
    print_summary(campaign.results, "# " if args.tap else "")
    if args.tap:
        return print_tap(campaign.results)
    bad = sum(len(r.get("false", [])) + len(r.get("broken", [])) + sum(i["missed"] for i in r.get("injections", [])) for r in campaign.results)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
