#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Injects random faults into real jobs of this machine, and judges what `sluicectl diagnose --live` says of them.

usage: inject.py --ctl PROGRAM --ranks PROGRAM [--gloo PROGRAM] [--mpi PROGRAM] [--shim LIBRARY] [--sluiced PROGRAM] [--runs N]
                 [--seed N] [--from N] [--only sluice|gloo|mpi] [--class NAMES] [--places NAMES] [--report FILE] [--tap] [--keep FOLDER]

Each run is drawn from the seed and its number, so that a run can be made again: a job of 4 to 16 ranks on Sluice, or on gloo or MPI
under the preload shim; on this host, over shared memory or TCP, or with a namespace for each rank, whose links have a rate; in the VM over
soft-RoCE (--places rdma), with a device for each rank where a link is slow; and one fault, or none. The diagnosis looks from before the
fault on. Whatever it says before is a false alarm, what it says first after it is its verdict.

What can be known is written down before the run (Fault.is_known): where it can, the first verdict has to accuse the culprit and
nobody else; where it cannot, the culprit has to be in its set. With --sluiced each host has files of its own in /dev/shm and a node
agent, and the diagnosis asks these over the network. Needs root, ip, tc with htb and u32, and nsenter for namespaces.
"""
import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from inject_net import Fabric, Namespaces, child_of, die_with_us

STALL_S = 2
QUIET_S = 3           # of the job and the diagnosis before the fault
LIMIT_S = 30          # for the verdict
LIMIT_LINKS_S = {"hosts": 60, "rdma": 90} # where a part of the network is slow: two windows that share no message have to say so
QUIET_LINKS_S = 16    # where a link's fault follows: as many windows of messages without it
START_S = 40
START_RDMA_S = 150    # in a machine whose processors are emulated
PRIORITY = 1          # of ranks, in real time: what else this machine does is none of their faults; the diagnosis comes before them
HANGS = ("stop", "kill", "sleep", "other")
LINKS = ("slow_sender", "slow_receiver", "slow_link")
PLACES = ("shm", "tcp", "hosts", "rdma")     # rdma: the VM's (tests/vm/network.sh), where it is asked for
CLASSES = ("none",) + HANGS + ("throttle", "slow_gpu") + LINKS


def go_first(priority):
    """It runs as soon as it may, in turn with others of its priority."""
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(priority))


# ---- what is drawn ----

class Fault:
    """What a run is: all of it follows from the seed and the number."""

    def __init__(self, args, number):
        draw = random.Random(f"{args.seed}/{number}")
        self.number = number
        self.kind = draw.choice([it for it in args.kinds if any(self.is_possible(it, name) for name in args.classes)])
        self.name = draw.choice([it for it in args.classes if self.is_possible(self.kind, it)])
        self.place = args.place_of_links if self.name in LINKS else draw.choice([it for it in args.places if self.kind != "mpi" or it != "hosts"])
        self.size = 2 * draw.randint(3 if self.name in LINKS else 2, min(args.most, 10 if self.place == "hosts" else 16) // 2)
        if self.name in LINKS:
            # Of one pair's messages that share both ends with those of many others, a slow link is no more than one of several reasons.
            self.size = min(self.size, 6 if self.name == "slow_link" else 8)
        self.victim = draw.randrange(self.size)
        self.pairs = self.name in LINKS and draw.random() < 0.75 or draw.random() < 0.5
        self.peer = draw.choice([r for r in range(self.size) if r != self.victim])
        if self.name in LINKS and not self.pairs:
            self.peer = (self.victim + 1) % self.size
        self.factor = draw.uniform(10, 25) # as a port that came up at a lower speed
        if self.name == "slow_link":
            # A healthy pair has a third to a fifth of its port, as others share it: a link that is a tenth as fast is three times as slow.
            self.factor *= 3
        self.period = draw.uniform(0.1, 0.3)    # of a throttled rank, in seconds
        self.share = draw.uniform(0.5, 0.75)    # of its time it is stopped
        self.job = f"inject-{os.getpid()}-{number}"
        self.port = 20000 + (os.getpid() * 131 + number) % 12000
        self.env = {"INJECT_BYTES": str(draw.choice((16384, 65536, 262144))), "INJECT_PAIR_BYTES": str(16384 if self.pairs else 0),
                    "INJECT_SPIN_US": str(draw.choice((300, 1000))),
                    "INJECT_SLEEP_US": str(draw.choice((8000, 20000)))}
        if self.name in LINKS:
            # Of a link's messages, four packets are too few to tell it: healthy pairs differ too much. No call may take as long as a hang.
            pair, link, usual, ring = (32768, 131072, 65536, 524288) if self.place == "hosts" else (16384, 32768, 16384, 32768)
            self.env["INJECT_PAIR_BYTES"] = str(0 if not self.pairs else link if self.name == "slow_link" else pair)
            self.env["INJECT_BYTES"] = str(usual if self.pairs else ring)
            self.env["SLUICE_ALGO"] = "" if self.pairs else "allreduce:ring"
        self.env["INJECT_FACTOR_PERCENT"] = str(draw.randint(130, 300))

    @staticmethod
    def is_possible(kind, name):
        """MPI's launcher ends a job one of whose ranks dies, and its ranks do not reach each other between namespaces."""
        return kind != "mpi" or (name != "kill" and name not in LINKS)

    def is_known(self):
        """Whether the culprit can be told by what ranks know. In a ring each rank has one receiver, and what is slow between
        the two may be the sender, the link or the receiver."""
        return self.name not in LINKS or self.pairs

    def begin(self, priority):
        """What its processes do first. In the VM nothing else runs but the kernel's threads that carry packets, which ranks in real time
        would keep from running, and a diagnosis in real time would slow ranks: all are ordinary there."""
        return die_with_us if self.place == "rdma" else lambda: go_first(priority)

    def every(self):
        """How often its diagnosis looks, in seconds: a look takes emulated processors from ranks."""
        return "2" if self.place == "rdma" and self.name in LINKS else "0.5"

    def text(self):
        whom = {"none": "", "slow_link": f" {self.victim}>{self.peer}"}.get(self.name, f" {self.victim}")
        return f"{self.kind} {self.place} {self.size} ranks{' pairs' if self.pairs else ''}: {self.name}{whom}"


# ---- a job ----

class Job:
    def __init__(self, args, fault, folder):
        self.fault, self.folder = fault, folder
        self.net, self.started, self.pids, self.logs = None, [], {}, []
        self.throttle, self.is_over = None, threading.Event()
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("SLUICE_", "OMPI_", "INJECT_"))}
        self.env |= fault.env | {"SLUICE_JOB": fault.job, "SLUICE_TRANSPORT": {"shm": "shm", "rdma": "verbs"}.get(fault.place, "tcp"),
                                 "SLUICE_ROOT": f"127.0.0.1:{fault.port}",
                                 # Ranks share two processors, which those of hosts of their own do not know: none may spin.
                                 "SLUICE_SPIN_US": "0"}
        if fault.place == "hosts":
            self.net = Namespaces(fault.size, args.sluiced, folder)
        elif fault.name in LINKS:
            self.net = Fabric(fault.size)
            self.env["SLUICE_INTERFACE"] = "m0"
        if self.net is not None:
            self.env["SLUICE_ROOT"] = self.net.root(fault.port)
        {"sluice": self.begin_sluice, "gloo": self.begin_gloo, "mpi": self.begin_mpi}[fault.kind](args)

    def start(self, rank, words, env):
        enter = self.net.enter(self.net.hosts[rank]) if self.net is not None else []
        log = os.path.join(self.folder, f"rank{rank}")
        if self.fault.place == "rdma":
            # Where it is emulated acknowledgements come late now and then, and are no loss (docs/vm.md): of a slow port by seconds.
            devices, timeout = (f"hca{rank}", "20") if self.net is not None else (("rxe0,rxe2", "rxe1,rxe3")[rank % 2], "16")
            env |= {"SLUICE_VERBS_DEVICES": devices, "SLUICE_VERBS_TIMEOUT": timeout}
        self.logs.append(log)
        with open(log, "w", encoding="utf-8") as out:
            self.started.append(subprocess.Popen(enter + words, env=self.env | env, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                                 preexec_fn=self.fault.begin(PRIORITY)))

    def begin_sluice(self, args):
        for rank in range(self.fault.size):
            self.start(rank, [args.ranks], {"SLUICE_RANK": str(rank), "SLUICE_SIZE": str(self.fault.size)})

    def begin_gloo(self, args):
        meet = os.path.join(self.folder, "meet")
        os.makedirs(meet)
        for rank in range(self.fault.size):
            self.start(rank, [args.gloo, str(rank), str(self.fault.size), meet, "eth0" if self.net else "lo"],
                       {"LD_PRELOAD": args.shim} | ({} if self.net else {"SLUICE_LOCAL_RANK": str(rank), "SLUICE_LOCAL_SIZE": str(self.fault.size)}))

    def begin_mpi(self, args):
        names = list(self.fault.env) + ["SLUICE_JOB", "SLUICE_TRANSPORT", "SLUICE_SPIN_US"]
        words = ["mpirun.openmpi", "--oversubscribe", "--mca", "btl_base_warn_component_unused", "0", "-n", str(self.fault.size),
                 "-x", f"LD_PRELOAD={args.shim}"]
        for name in names:
            words += ["-x", name]
        self.start(0, words + [args.mpi], {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})

    def pid_here(self, rank, pid):
        """A host with an agent numbers its processes itself; each rank of a namespace was started alone."""
        return child_of(self.started[rank].pid) if self.net is not None and self.net.agents else pid

    def wait_until_it_runs(self):
        end = time.monotonic() + (START_RDMA_S if self.fault.place == "rdma" else START_S)
        while time.monotonic() < end and len(self.pids) < self.fault.size:
            for log in self.logs:
                with open(log, encoding="utf-8", errors="replace") as file:
                    for line in file:
                        words = line.split()
                        if len(words) == 4 and words[0] == "rank" and words[2] == "pid":
                            self.pids[int(words[1])] = self.pid_here(int(words[1]), int(words[3]))
            time.sleep(0.1)
        if len(self.pids) < self.fault.size:
            raise RuntimeError(f"the job does not start: {self.tail()}")

    def tail(self):
        said = []
        for log in self.logs:
            with open(log, encoding="utf-8", errors="replace") as file:
                said += [line for line in file.read().splitlines()[-3:] if not line.startswith("rank ")]
        return " / ".join(said[:4])

    def inject(self):
        fault, pid = self.fault, self.pids[self.fault.victim]
        signals = {"stop": signal.SIGSTOP, "kill": signal.SIGKILL, "sleep": signal.SIGRTMIN, "other": signal.SIGUSR2,
                   "slow_gpu": signal.SIGRTMIN + 1}
        if fault.name in signals:
            os.kill(pid, signals[fault.name])
        elif fault.name == "throttle":
            self.throttle = threading.Thread(target=self.stop_and_go, args=(pid,))
            self.throttle.start()
        elif fault.name == "slow_sender":
            self.net.slow_sender(fault.victim, fault.factor)
        elif fault.name == "slow_receiver":
            self.net.slow_receiver(fault.victim, fault.factor)
        elif fault.name == "slow_link":
            self.net.slow_link(fault.victim, fault.peer, fault.factor)

    def stop_and_go(self, pid):
        """As a process that has used up its share of a processor: it runs for a part of each period."""
        while not self.is_over.is_set():
            os.kill(pid, signal.SIGSTOP)
            time.sleep(self.fault.period * self.fault.share)
            os.kill(pid, signal.SIGCONT)
            time.sleep(self.fault.period * (1 - self.fault.share))

    def pages(self):
        ours = {str(pid) for pid in self.pids.values()}
        return [os.path.join("/dev/shm", name) for name in os.listdir("/dev/shm")
                if name.startswith("sluice.") and name.split(".")[2] in ours]

    def close(self, keeps_pages):
        self.is_over.set()
        if keeps_pages:
            for page in self.pages():
                shutil.copy(page, self.folder)
        if self.throttle is not None:
            self.throttle.join()
        for pid in list(self.pids.values()) + [it.pid for it in self.started]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for it in self.started:
            it.wait()
        if self.net is not None:
            self.net.close()
        for page in self.pages():
            os.unlink(page)


# ---- its diagnosis ----

class Watch:
    """A diagnosis that follows the job: what it said, and when."""

    def __init__(self, args, job, folder):
        self.said = []
        self.changed = threading.Condition()
        words = [args.ctl, "diagnose", "--live", "--follow", "-o", "json", "--stall", str(STALL_S), "--every", job.fault.every(), "--job", job.fault.job]
        if job.net is not None and job.net.agents:
            words = job.net.enter(job.net.switch) + words + job.net.agents
        with open(os.path.join(folder, "ctl"), "w", encoding="utf-8") as err:
            self.ctl = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=err, text=True, preexec_fn=job.fault.begin(PRIORITY + 1))
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.ctl.stdout:
            with self.changed:
                self.said.append((time.monotonic(), json.loads(line)["verdicts"]))
                self.changed.notify_all()

    def wait_for_one(self, limit):
        """The first that accuses somebody, and when it was said; None."""
        end = time.monotonic() + limit
        with self.changed:
            while True:
                for at, verdicts in self.said:
                    accused = [it for it in verdicts if it["class"] != "not_hung"]
                    if accused:
                        return at, accused
                if not self.changed.wait(max(0, end - time.monotonic())):
                    return None

    def close(self):
        self.ctl.kill()
        self.ctl.wait()
        self.reader.join()


# ---- who is right ----

def is_culprit(fault, verdict, thing):
    """Whether that is what the fault was given to."""
    whom = thing.get("rank")
    if fault.name == "other":
        return thing["kind"] == "program" and any(f"rank {fault.victim} " in line or f"rank {fault.victim}," in line for line in verdict["evidence"])
    if fault.name == "slow_link":
        return thing["kind"] == "link" and (thing["from"], thing["to"]) == (fault.victim, fault.peer)
    if whom is None and (fault.place == "hosts" or fault.name in LINKS):
        return thing.get("name") == f"h{fault.victim}"
    return whom == fault.victim


EXPECTED = {"stop": ("host_stalled",), "kill": ("dead",), "sleep": ("host_stalled",), "other": ("mismatch",), "throttle": ("slow_rank",),
            "slow_gpu": ("slow_rank",),
            "slow_sender": ("slow_sender", "slow_group"), "slow_receiver": ("slow_receiver", "slow_group"), "slow_link": ("slow_link",)}


def judge(fault, verdicts):
    """(top-1, culprit in a set, innocents accused): of verdicts that were said together."""
    top = found = False
    innocents = 0
    for it in verdicts:
        is_it = is_culprit(fault, it, it["accused"])
        is_in = is_it or any(is_culprit(fault, it, other) for other in it["others"])
        top = top or (is_it and it["class"] in EXPECTED[fault.name])
        found = found or is_in
        innocents += not is_in
    return top and innocents == 0, found, innocents


def describe(verdicts):
    said = []
    for it in verdicts:
        thing = it["accused"]
        whom = f"{thing['from']}>{thing['to']}" if thing["kind"] == "link" else thing.get("rank", thing.get("name", thing["kind"]))
        said.append(f"{it['class']} {whom}" + (f" or {len(it['others'])} others" if it["others"] else ""))
    return ", ".join(said) or "nothing"


class Result:
    def __init__(self, fault):
        self.fault, self.after, self.said, self.why = fault, None, "", ""
        self.top, self.found, self.innocents = False, False, 0

    def is_good(self):
        known = self.fault.is_known()
        return self.innocents == 0 and self.why == "" and (self.fault.name == "none" or self.top or (not known and self.found))

    def record(self):
        fault = self.fault
        return {"number": fault.number, "job": fault.kind, "place": fault.place, "size": fault.size, "class": fault.name, "text": fault.text(),
                "known": fault.is_known(), "top": self.top, "found": self.found, "innocents": self.innocents, "after_s": self.after,
                "said": self.said, "why": self.why, "good": self.is_good()}


def fill(result, job, watch, healthy_s):
    fault = result.fault
    early = watch.wait_for_one(healthy_s if fault.name == "none" else QUIET_LINKS_S if fault.name in LINKS else QUIET_S)
    if early is not None:
        result.innocents, result.said = len(early[1]), f"before the fault: {describe(early[1])}"
        return
    if fault.name == "none":
        result.said = "nothing"
        return
    begin = time.monotonic()
    job.inject()
    one = watch.wait_for_one(LIMIT_LINKS_S[fault.place] if fault.name in LINKS else LIMIT_S)
    if one is None:
        result.said = "nothing"
        return
    result.after = round(one[0] - begin, 2)
    result.top, result.found, result.innocents = judge(fault, one[1])
    result.said = describe(one[1])


def make_run(args, number):
    fault = Fault(args, number)
    folder = tempfile.mkdtemp(prefix=f"{fault.job}-", dir=args.keep)
    result, job, watch = Result(fault), None, None
    try:
        job = Job(args, fault, folder)
        job.wait_until_it_runs()
        watch = Watch(args, job, folder)
        fill(result, job, watch, args.healthy)
    except (RuntimeError, OSError) as err:
        result.why = str(err)
    finally:
        if watch is not None:
            watch.close()
            with open(os.path.join(folder, "said"), "w", encoding="utf-8") as out:
                json.dump([verdicts for _, verdicts in watch.said], out, indent=1)
        if job is not None:
            job.close(args.keep is not None)
        if args.keep is None:
            shutil.rmtree(folder)
    return result


# ---- what is printed ----

def print_table(records):
    print(f"{'class':14} {'runs':>4} {'known':>5} {'top-1':>5} {'in set':>6} {'innocents':>9} {'failed':>6}  seconds to the verdict: median, least, most")
    for name in CLASSES + ("all",):
        of = [it for it in records if name in (it["class"], "all")]
        if not of:
            continue
        known = [it for it in of if it["known"]]
        times = [it["after_s"] for it in of if it["after_s"] is not None]
        spread = f"{statistics.median(times):.1f}, {min(times):.1f}, {max(times):.1f}" if times else ""
        right = sum(it["top"] if it["class"] != "none" else it["good"] for it in known)
        print(f"{name:14} {len(of):4} {len(known):5} {right:5} {sum(it['found'] for it in of if not it['known']):3}/{len(of) - len(known):<2} "
              f"{sum(it['innocents'] > 0 for it in of):9} {sum(not it['good'] for it in of):6}  {spread}")


def take_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    for name in ("ctl", "ranks"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("gloo", "mpi", "shim", "sluiced", "keep", "report"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--healthy", type=float, default=12, help="seconds of a job without a fault; what lasts has shown itself after 40")
    parser.add_argument("--only", choices=("sluice", "gloo", "mpi"))
    parser.add_argument("--class", dest="classes", default=",".join(CLASSES))
    parser.add_argument("--most", type=int, default=16, help="ranks of a job")
    parser.add_argument("--places", default="shm,tcp,hosts")
    parser.add_argument("--tap", action="store_true")
    args = parser.parse_args()
    args.places = args.places.split(",")
    args.kinds = [kind for kind in ("sluice", "gloo", "mpi") if args.only in (None, kind) and (kind == "sluice" or getattr(args, kind))]
    args.place_of_links = "hosts" if "hosts" in args.places else "rdma"
    args.classes = args.classes.split(",")
    if not set(args.classes) <= set(CLASSES) or not set(args.places) <= set(PLACES) or not args.kinds:
        parser.error(f"classes are {', '.join(CLASSES)}; places {', '.join(PLACES)}")
    if not shutil.which("mpirun.openmpi") and "mpi" in args.kinds:
        args.kinds.remove("mpi")
    return args


def main():
    args = take_arguments()
    if os.geteuid() != 0 or not all(shutil.which(it) for it in ("ip", "tc", "nsenter", "unshare")):
        print("1..0 # SKIP it needs root, ip, tc, nsenter and unshare")
        return 0
    records = []
    if args.tap:
        print(f"1..{args.runs}")
    for number in range(args.first, args.first + args.runs):
        result = make_run(args, number)
        records.append(result.record())
        time_text = f" after {result.after:.1f} s" if result.after is not None else ""
        line = f"{result.fault.text()}: {result.said}{time_text}{result.why}"
        if args.tap:
            print(f"{'ok' if result.is_good() else 'not ok'} {number - args.first + 1} - {line}", flush=True)
        else:
            print(f"{number:3} {'good' if result.is_good() else 'WRONG'} {line}", flush=True)
        if args.report:
            with open(args.report, "a", encoding="utf-8") as out:
                print(json.dumps(records[-1]), file=out)
    if not args.tap:
        print_table(records)
    return 0 if args.tap or all(it["good"] for it in records) else 1


if __name__ == "__main__":
    sys.exit(main())
