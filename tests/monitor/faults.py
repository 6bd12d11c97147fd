# SPDX-License-Identifier: Apache-2.0
"""Faults: how each is made, what the agents must say of it and until when, and what else is true while it lasts.

What an agent says is (host, kind, subject, check). Each fault has
  expect  what must be said, each within so many seconds of its begin; of several names, one
  allow   what may be said too, since it is so: a link that is down for seconds loses what is sent over it
Everything else that is said is a false accusation."""
import glob
import os
import re
import shutil
import signal
import subprocess
import time

from host import LINK, RATE_MBIT, Group, Unable, now_ns, shape

# Of a step: bytes, and time that it computes and does not, in microseconds.
STEADY = ["--bytes", "1048576", "--sleep-us", "4000"]
STREAM = ["--bytes", "16777216", "--from", "0"]
IDLE = ["--bytes", "1024", "--sleep-us", "400000"]
COMPUTE = ["--bytes", "262144", "--busy-us", "20000", "--sleep-us", "20000"]
BUSY = ["--bytes", "65536", "--busy-us", "40000"]
LIGHT = ["--bytes", "65536", "--sleep-us", "2000"]
DATASET_BYTES = 96 << 20
WORKLOADS = {"steady": STEADY, "stream": STREAM, "idle": IDLE, "compute": COMPUTE}


class Says:
    """A pattern of what may be said: of host A, B or both (*); the subject by a regular expression."""

    def __init__(self, host, kind, subject, *checks):
        self.host, self.kind, self.subject, self.checks = host, kind, subject, checks

    def matches(self, said):
        return (self.host in ("*", said["host"]) and said["kind"] == self.kind and re.fullmatch(self.subject, said["subject"])
                and (not self.checks or said["check"] in self.checks))

    def __str__(self):
        return f"{self.host}: {self.kind} {self.subject} {'|'.join(self.checks)}".replace("\\", "")


def path_to(bed, host, *checks):
    """What that host may say of the way to the other one."""
    other = re.escape(bed.other(host).address)
    return Says(host.name, "peer", f".*{other}", *checks)


def process(host, rank, *checks):
    return Says(host.name, "process", f"pid {rank.pid}", *checks)


PATH = ("path_loss", "path_blackout", "peer_slow", "path_slow")


class Fault:
    name = "?"
    what = ""               # in words, for the report
    workloads = (STEADY, STEADY)
    seconds = 6             # it lasts, and is watched
    settle = 2.0            # before the quiet period that precedes it
    link = "veth"
    needs = ()

    def __init__(self, rng):
        self.rng = rng
        self.values = {}    # drawn, for the report
        self.draw()

    def draw(self):
        pass

    def lacks(self):
        """None, or why it cannot be made here."""
        missing = [program for program in self.needs if shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin") is None]
        return f"{', '.join(missing)} not here" if missing else None

    def prepare(self, bed):
        """Before the quiet period: what the fault needs and which is none."""

    def begin(self, bed):
        raise NotImplementedError

    def end(self, bed):
        """Undoes it; may be called twice, and before begin."""

    def restore(self, bed):
        """Undoes prepare()."""

    def expect(self, bed):
        """[(Says, seconds within)]"""
        return []

    def allow(self, bed):
        return []

    def problem(self, bed):
        """After the end: None, or why this was no injection (nothing was hit by chance)."""
        return None

    def pick(self, bed):
        self.host = bed.hosts[self.values["host"]]
        self.other = bed.other(self.host)
        return self.host


def log_uniform(rng, least, most):
    return least * (most / least) ** rng.random()


# ---- links ----

class Down(Fault):
    name, what = "down", "the link stays down (its other end is taken down)"

    def draw(self):
        self.values = {"host": self.rng.randrange(2)}

    def begin(self, bed):
        self.pick(bed).set_link(False)

    def end(self, bed):
        bed.hosts[self.values["host"]].set_link(True)

    def expect(self, bed):
        return [(Says(self.other.name, "port", LINK, "link_down"), 4)]

    def allow(self, bed):
        return [path_to(bed, host, *PATH) for host in bed.hosts] + [Says(self.other.name, "port", LINK, "link_flap")]


class RateCap(Fault):
    name, what = "rate_cap", f"the link carries 1/5 to 1/50 of its {RATE_MBIT} Mbit/s (tbf)"
    workloads = (STREAM, STREAM)
    needs = ("tc",)
    settle = 9.0            # the usual rate is learnt first
    seconds = 14

    def draw(self):
        self.values = {"host": 0, "mbit": round(RATE_MBIT / log_uniform(self.rng, 5, 50))}

    def begin(self, bed):
        shape(self.pick(bed), f"{self.values['mbit']}mbit")

    def end(self, bed):
        shape(bed.hosts[self.values["host"]], f"{RATE_MBIT}mbit")

    def expect(self, bed):
        return [(path_to(bed, self.host, "path_slow"), 13)]


class QueueStall(Fault):
    name, what = "queue_stall", "what stands in the queue of the NIC does not leave it (tbf at 8 bit/s)"
    workloads = (STREAM, STREAM)
    needs = ("tc",)
    seconds = 7

    def draw(self):
        self.values = {"host": self.rng.randrange(2)}

    def begin(self, bed):
        shape(self.pick(bed), "8bit", limit="limit 4mb")

    def end(self, bed):
        shape(bed.hosts[self.values["host"]], f"{RATE_MBIT}mbit")

    def expect(self, bed):
        return [(Says(self.host.name, "port", LINK, "transmit_stall"), 6)]

    def allow(self, bed):
        return [path_to(bed, host, *PATH) for host in bed.hosts]


class Ingress(Fault):
    """What arrives at a host is dropped there: by a rule of nft, which counts."""
    needs = ("nft",)
    workloads = (STREAM, STREAM)

    def drop(self, host, condition):
        host.run("nft", "add", "table", "netdev", "faults")
        host.run("nft", "add", "chain", "netdev", "faults", "in", "{", "type", "filter", "hook", "ingress", "device", LINK, "priority", "0", ";", "}")
        host.run("nft", "add", "rule", "netdev", "faults", "in", *condition.split(), "counter", "drop")

    def undrop(self, host):
        text = host.run("nft", "list", "table", "netdev", "faults", may_fail=True)
        found = re.search(r"counter packets (\d+)", text)
        host.run("nft", "delete", "table", "netdev", "faults", may_fail=True)
        return int(found[1]) if found else 0

    def end(self, bed):
        if hasattr(self, "other") and not hasattr(self, "dropped"):
            self.dropped = self.undrop(self.other)
            self.values["dropped"] = self.dropped


class Loss(Ingress):
    name, what = "loss", "0.1 to 5 % of the packets of one direction are lost"
    seconds = 8

    def draw(self):
        self.values = {"host": 0, "percent": round(log_uniform(self.rng, 0.1, 5), 3)}

    def begin(self, bed):
        self.pick(bed)
        self.drop(self.other, f"ip protocol tcp numgen random mod 100000 < {int(self.values['percent'] * 1000)}")

    def expect(self, bed):
        return [(path_to(bed, self.host, "path_loss"), 7)]

    def allow(self, bed):
        # At some percent whole windows are lost, which only a timeout finds; acknowledgements are not.
        return [path_to(bed, self.host, "path_blackout")] if self.values["percent"] >= 1 else []

    def problem(self, bed):
        return None if self.dropped >= 5 * self.seconds else f"{self.dropped} packets were lost in all"


class Blackout(Ingress):
    name, what = "blackout", "all packets of one direction are lost, for 2.5 to 4 s or 200 to 500 ms each 1.5 s"
    seconds = 7

    def draw(self):
        long = self.rng.random() < 0.5
        self.values = {"host": 0, "repeated": not long, "ms": self.rng.randrange(2500, 4000) if long else self.rng.randrange(200, 500)}

    def begin(self, bed):
        self.pick(bed)
        self.drop(self.other, "ip protocol tcp numgen inc mod 1 < 1")
        self.until = now_ns() + self.values["ms"] * 1000000
        self.is_dark = True

    def poll(self, bed):
        """Between two looks at what was said: lifts it, and lets it fall again."""
        now = now_ns()
        if self.is_dark and now >= self.until:
            self.total = getattr(self, "total", 0) + self.undrop(self.other)
            self.is_dark = False
            self.until = now + (1500 - self.values["ms"]) * 1000000
        elif not self.is_dark and self.values["repeated"] and now >= self.until:
            self.drop(self.other, "ip protocol tcp numgen inc mod 1 < 1")
            self.until = now_ns() + self.values["ms"] * 1000000
            self.is_dark = True

    def end(self, bed):
        if hasattr(self, "other") and not hasattr(self, "dropped"):
            self.dropped = getattr(self, "total", 0) + self.undrop(self.other)
            self.values["dropped"] = self.dropped

    def expect(self, bed):
        return [(path_to(bed, self.host, "path_blackout"), 7)]

    def allow(self, bed):
        # Acknowledgements are lost, too: the other end cannot know which way it is that is dark.
        return [path_to(bed, self.host, "path_loss"), path_to(bed, self.other, "path_blackout", "path_loss")]


class WrongMac(Fault):
    name, what = "wrong_mac", "a neighbour entry leads into a black hole"
    workloads = (STREAM, STREAM)
    seconds = 7

    def draw(self):
        self.values = {"host": self.rng.randrange(2)}

    def begin(self, bed):
        host = self.pick(bed)
        host.run("ip", "neigh", "replace", self.other.address, "lladdr", "02:00:00:00:00:99", "dev", LINK, "nud", "permanent")

    def end(self, bed):
        host = bed.hosts[self.values["host"]]
        host.run("ip", "neigh", "del", bed.other(host).address, "dev", LINK, may_fail=True)

    def expect(self, bed):
        # The sender of data sees it, whichever way is cut: no acknowledgement comes.
        return [(path_to(bed, bed.hosts[0], "path_blackout"), 6)]

    def allow(self, bed):
        return [path_to(bed, host, "path_blackout", "path_loss") for host in bed.hosts]


class Damage(Fault):
    name, what = "damage", "a bit of 0.1 to 2 % of the packets is turned; checksums find it"
    workloads = (STREAM, STREAM)
    needs = ("clang", "tc", "ethtool")
    seconds = 7
    settle = 3.0

    def draw(self):
        self.values = {"host": 0, "percent": round(log_uniform(self.rng, 0.1, 2), 3)}

    def prepare(self, bed):
        """Checksums are made and looked at, which a veth pair is spared otherwise."""
        host = self.pick(bed)
        self.object = os.path.join(bed.folder, "damage.o")
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "damage.bpf.c")
        includes = [f"-I{folder}" for folder in glob.glob("/usr/include/*-linux-gnu*")]
        made = subprocess.run(["clang", *includes, "-O2", "-target", "bpf", f"-DPART={int(self.values['percent'] / 100 * 2 ** 32)}u", "-c", source,
                               "-o", self.object], capture_output=True, text=True)
        if made.returncode != 0:
            raise Unable(f"the program that damages packets cannot be compiled: {made.stderr.strip()[-200:]}")
        host.run("ethtool", "-K", LINK, "tx", "off")
        self.other.run("ethtool", "-K", LINK, "gro", "off")

    def begin(self, bed):
        self.other.run("tc", "qdisc", "add", "dev", LINK, "clsact")
        self.other.run("tc", "filter", "add", "dev", LINK, "ingress", "bpf", "da", "obj", self.object, "sec", "tc")

    def end(self, bed):
        self.other.run("tc", "qdisc", "del", "dev", LINK, "clsact", may_fail=True)

    def restore(self, bed):
        self.host.run("ethtool", "-K", LINK, "tx", "on", "tso", "on", "gso", "on", may_fail=True)
        self.other.run("ethtool", "-K", LINK, "gro", "on", may_fail=True)

    def expect(self, bed):
        return [(Says(self.other.name, "host", "host", "damaged_segments"), 6)]

    def allow(self, bed):
        return [path_to(bed, self.host, "path_loss", "path_blackout")]


class DriverStall(Fault):
    name, what = "driver_stall", "what takes packets from the NIC stands still (a TAP whose reader is stopped)"
    workloads = (STREAM, STREAM)
    link = "tap"
    seconds = 7

    def draw(self):
        self.values = {}

    def begin(self, bed):
        bed.relay.send_signal(signal.SIGSTOP)

    def end(self, bed):
        bed.relay.send_signal(signal.SIGCONT)

    def expect(self, bed):
        # Nothing stands in a queue that Linux counts: what can be known is that nothing arrives.
        return [(path_to(bed, bed.hosts[0], "path_blackout"), 6)]

    def allow(self, bed):
        return [path_to(bed, host, *PATH) for host in bed.hosts] + [Says("*", "port", LINK, "transmit_stall")]


# ---- ranks ----

class Stopped(Fault):
    seconds = 6
    rank = 0
    workloads = (STREAM, STREAM)

    def draw(self):
        self.values = {"ms": self.rng.randrange(1500, 5000)}

    def begin(self, bed):
        self.target = bed.ranks[self.rank]
        self.target.signal(signal.SIGSTOP)
        self.until = now_ns() + self.values["ms"] * 1000000

    def poll(self, bed):
        if self.until is not None and now_ns() >= self.until:
            self.target.signal(signal.SIGCONT)
            self.until = None

    def end(self, bed):
        if hasattr(self, "target"):
            self.target.signal(signal.SIGCONT)

    def expect(self, bed):
        return [(process(self.target.host, self.target, "stopped"), 2.5)]


class ReceiverStopped(Stopped):
    name, what, rank = "receiver_stopped", "SIGSTOP of the rank that receives, 1.5 to 5 s", 1

    def expect(self, bed):
        also = [(path_to(bed, bed.hosts[0], "peer_slow"), 6)] if self.values["ms"] >= 4500 else []
        return super().expect(bed) + also

    def allow(self, bed):
        return [path_to(bed, bed.hosts[0], "peer_slow")]


class SenderStopped(Stopped):
    name, what, rank = "sender_stopped", "SIGSTOP of the rank that sends, 1.5 to 5 s", 0


class Quota(Fault):
    name, what = "cpu_quota", "a CPU quota of 10 to 50 % on a rank that computes"
    workloads = (BUSY, LIGHT)
    seconds = 8

    def draw(self):
        self.values = {"percent": self.rng.randrange(10, 50), "moved": self.rng.random() < 0.5}

    def prepare(self, bed):
        self.target = bed.ranks[0]
        self.group = Group("cpu", f"sluice-inject-{os.getpid()}")
        self.group.write("cpu.shares", 30000)  # the quota is to limit it, and not what else this machine does
        if not self.values["moved"]:
            self.group.write("cgroup.procs", self.target.outer)

    def begin(self, bed):
        self.group.write("cpu.cfs_period_us", 100000)
        self.group.write("cpu.cfs_quota_us", self.values["percent"] * 1000)
        if self.values["moved"]:
            self.group.write("cgroup.procs", self.target.outer)

    def end(self, bed):
        if hasattr(self, "group"):
            self.group.write("cpu.cfs_quota_us", -1)

    def restore(self, bed):
        if hasattr(self, "group"):
            self.group.close()

    def expect(self, bed):
        return [(process(self.target.host, self.target, "throttled"), 6)]


class Hog(Fault):
    name, what = "cpu_hog", "1 to 3 other programs that compute on the processor of a rank that computes"
    workloads = (BUSY, LIGHT)
    seconds = 8

    def draw(self):
        self.values = {"hogs": self.rng.randrange(1, 4)}

    def prepare(self, bed):
        self.target = bed.ranks[0]
        self.hogs = []
        for thread in os.listdir(f"/proc/{self.target.outer}/task"):
            os.sched_setaffinity(int(thread), {0})
        for thread in os.listdir(f"/proc/{bed.ranks[1].outer}/task"):
            os.sched_setaffinity(int(thread), {max(os.sched_getaffinity(0))})

    def begin(self, bed):
        for _ in range(self.values["hogs"]):
            self.hogs.append(self.target.host.start(["taskset", "-c", "0", "sh", "-c", "while :; do :; done"]))

    def end(self, bed):
        for hog in getattr(self, "hogs", []):
            hog.signal(signal.SIGKILL)
            hog.wait(3)
        self.hogs = []

    def expect(self, bed):
        return [(process(self.target.host, self.target, "starved"), 6)]

    needs = ("taskset",)


class Memory(Fault):
    name, what = "memory_limit", "a memory limit below the pages that a rank reads again and again"
    seconds = 8

    def draw(self):
        self.values = {"mib": self.rng.randrange(8, 30)}

    @property
    def workloads(self):
        return (["--bytes", "65536", "--sleep-us", "300", "--dataset", "DATASET"], LIGHT)

    def prepare(self, bed):
        self.target = bed.ranks[0]
        self.group = bed.memory_group

    def begin(self, bed):
        with open(f"/proc/{self.target.outer}/status") as file:
            anon = next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))
        limit = anon * 1024 + (self.values["mib"] << 20)
        self.stall_us, self.hits = self.measure()
        self.values["limit_mib"] = limit >> 20
        for _ in range(50):  # what cannot be taken back at once is refused
            try:
                self.group.write("memory.limit_in_bytes", limit)
                return
            except OSError:
                time.sleep(0.01)
        raise Unable("the limit of memory cannot be set")

    def measure(self):
        """Time that tasks of this machine waited for memory, and how often the limit was reached."""
        with open("/proc/pressure/memory") as file:
            stall = int(re.search(r"some .*total=(\d+)", file.read())[1])
        with open(f"{self.group.path}/memory.failcnt") as file:
            return stall, int(file.read())

    def end(self, bed):
        if hasattr(self, "group") and "hits" not in self.values:
            stall_us, hits = self.measure()
            self.values["hits"] = hits - self.hits
            self.values["stalled_percent"] = round((stall_us - self.stall_us) / self.seconds / 1e4, 1)
            self.group.write("memory.limit_in_bytes", -1)

    def expect(self, bed):
        return [(process(self.target.host, self.target, "memory_pressure"), 7)]

    def allow(self, bed):
        # Where there is no room at all, the kernel kills it.
        bed.may_end = True
        return [process(self.target.host, self.target, "blocked", "died")]

    def problem(self, bed):
        share = self.values["stalled_percent"]
        return None if share >= 12 else f"tasks waited for memory {share} % of the time only"


class Killed(Fault):
    name, what = "killed", "SIGKILL of a rank"
    seconds = 4

    def draw(self):
        self.values = {"rank": self.rng.randrange(2)}

    def begin(self, bed):
        self.target = bed.ranks[self.values["rank"]]
        self.target.signal(signal.SIGKILL)
        bed.may_end = True

    def expect(self, bed):
        return [(process(self.target.host, self.target, "died"), 3)]


ALL = [Down, RateCap, Loss, Blackout, WrongMac, Damage, QueueStall, DriverStall, ReceiverStopped, SenderStopped, Quota, Hog, Memory, Killed]
