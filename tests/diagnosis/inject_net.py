# SPDX-License-Identifier: Apache-2.0
"""Networks whose links are made slow, for inject.py: a host for each rank behind a switch, in namespaces or as soft-RoCE devices."""
import ctypes
import os
import signal
import subprocess
import time

AGENT_PORT = 9494


def run(*words, may_fail=False):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0 and not may_fail:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def die_with_us():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def child_of(pid):
    """The first that it started."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
        children = file.read().split()
    if not children:
        raise RuntimeError(f"process {pid} has started no other")
    return int(children[0])


class Net:
    """A switch, and a host for each rank behind a link of MBIT each way. A namespace is that of a process."""
    MBIT, MTU, NETWORK = 200, 9000, "10.77.0"

    def __init__(self, count):
        self.count, self.holders, self.agents = count, [], []
        self.switch, self.hosts = None, []

    def device(self, i):
        """Of host i, at its end of the link; at the switch's end it is p{i}."""
        raise NotImplementedError

    def address(self, i):
        return f"{self.NETWORK}.{i + 1}"

    def root(self, port):
        """Where rank 0 of a job is met."""
        raise NotImplementedError

    def hold(self, spaces, name=None):
        """Returns a process in new namespaces, which says a line when it is in them."""
        first = subprocess.Popen(["unshare"] + spaces + ["sh", "-c", "echo; exec sleep 3600"], stdout=subprocess.PIPE, preexec_fn=die_with_us)
        self.holders.append(first)
        if first.stdout.readline() == b"":
            raise RuntimeError(f"no namespaces: unshare {' '.join(spaces)}")
        pid = child_of(first.pid) if "--fork" in spaces else first.pid
        if name is not None:
            self.inside(pid, "hostname", name)
        return pid

    @staticmethod
    def enter(pid):
        spaces = [(name, file) for name, file in (("net", "net"), ("uts", "uts"), ("ipc", "ipc"), ("mount", "mnt"), ("pid", "pid"))
                  if os.readlink(f"/proc/{pid}/ns/{file}") != os.readlink(f"/proc/self/ns/{file}")]
        return ["nsenter", f"--wd={os.getcwd()}"] + [f"--{name}=/proc/{pid}/ns/{file}" for name, file in spaces]

    def inside(self, pid, *words):
        return run(*self.enter(pid), *words)

    def start_switch(self):
        self.inside(self.switch, "ip", "link", "add", "sw", "mtu", str(self.MTU), "type", "bridge", "mcast_snooping", "0")
        self.inside(self.switch, "ip", "link", "set", "sw", "up")

    def limit(self, pid, device):
        """Acknowledgements first, by their length: they do not wait for data of the other direction."""
        self.tc(pid, "qdisc", "add", device, "root", "handle", "1:", "htb", "default", "20")
        self.tc(pid, "class", "add", device, "parent", "1:", "classid", "1:1", "htb", "rate", "10gbit")
        self.tc(pid, "class", "add", device, "parent", "1:1", "classid", "1:10", "htb", "rate", "1gbit", "prio", "0")
        self.tc(pid, "filter", "add", device, "parent", "1:", "protocol", "ip", "prio", "1", "u32", "match", "u16", "0", "0xffc0", "at", "2",
                "flowid", "1:10")
        self.tc(pid, "class", "add", device, "parent", "1:1", "classid", "1:20", "htb", *self.rate(1), "prio", "1")

    def rate(self, factor):
        mbit = f"{self.MBIT / factor:.3f}mbit"
        return "rate", mbit, "ceil", mbit, "burst", "10k", "cburst", "10k"

    def tc(self, pid, what, verb, device, *words):
        self.inside(pid, "tc", what, verb, "dev", device, *words)

    def slow_sender(self, i, factor):
        self.tc(self.hosts[i], "class", "change", self.device(i), "parent", "1:1", "classid", "1:20", "htb", *self.rate(factor), "prio", "1")

    def slow_receiver(self, i, factor):
        self.tc(self.switch, "class", "change", f"p{i}", "parent", "1:1", "classid", "1:20", "htb", *self.rate(factor), "prio", "1")

    def slow_link(self, i, k, factor):
        host, device = self.hosts[i], self.device(i)
        self.tc(host, "class", "add", device, "parent", "1:1", "classid", "1:30", "htb", *self.rate(factor), "prio", "1")
        self.tc(host, "filter", "add", device, "parent", "1:", "protocol", "ip", "prio", "2", "u32", "match", "ip", "dst", self.address(k),
                "flowid", "1:30")

    def close(self):
        for holder in self.holders:
            holder.kill()
        for holder in self.holders:
            holder.wait()


class Namespaces(Net):
    """A host is a network namespace. One with an agent has processes and files of its own, too."""

    def __init__(self, count, sluiced, folder):
        super().__init__(count)
        spaces = ["--net", "--uts"] + (["--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"] if sluiced is not None else [])
        try:
            self.switch = self.hold(["--net", "--uts"])
            self.hosts = [self.hold(spaces, f"h{i}") for i in range(count)]
            self.start_switch()
            self.inside(self.switch, "ip", "address", "add", f"{self.NETWORK}.254/24", "dev", "sw")
            for i in range(count):
                self.join(i)
                if sluiced is not None:
                    self.agents.append(self.start_agent(i, sluiced, folder))
        except Exception:
            self.close()
            raise

    def device(self, i):
        return "eth0"

    def root(self, port):
        return f"{self.address(0)}:{port}"

    def start_agent(self, i, sluiced, folder):
        """Returns where it is asked."""
        host, address = self.hosts[i], f"{self.address(i)}:{AGENT_PORT}"
        base = os.path.join(folder, f"agent{i}")
        self.inside(host, "mount", "-t", "tmpfs", "tmpfs", "/dev/shm")
        with open(f"{base}.conf", "w", encoding="utf-8") as conf:
            conf.write(f"[api]\nsocket = {base}.sock\nhttp = {address}\n[store]\npath = {base}.db\n[sources]\nkmsg = off\nrdma = off\n")
        with open(f"{base}.log", "w", encoding="utf-8") as log:
            self.holders.append(subprocess.Popen(self.enter(host) + [sluiced, "--config", f"{base}.conf"], stdout=log, stderr=subprocess.STDOUT,
                                                 stdin=subprocess.DEVNULL, preexec_fn=die_with_us))
        return f"http://{address}"

    def join(self, i):
        host = self.hosts[i]
        self.inside(host, "ip", "link", "set", "lo", "up")
        self.inside(self.switch, "ip", "link", "add", f"p{i}", "type", "veth", "peer", "name", "eth0", "netns", str(host))
        # Packets, not bursts of them: the first of what a limiter saved up for goes at once, however long it is.
        self.inside(self.switch, "ip", "link", "set", f"p{i}", "mtu", str(self.MTU), "gso_max_segs", "1", "master", "sw", "up")
        self.inside(host, "ip", "address", "add", f"{self.address(i)}/24", "dev", "eth0")
        self.inside(host, "ip", "link", "set", "eth0", "mtu", str(self.MTU), "gso_max_segs", "1", "up")
        self.limit(host, "eth0")
        self.limit(self.switch, f"p{i}")


class Fabric(Net):
    """A host is a soft-RoCE device hca{i} over h{i}, and a name. All are in the VM's first network namespace, as soft-RoCE hears no other;
    routes by source and by device lead out to the switch, as those of tests/vm/network.sh do, of which m0 is for TCP. Its links are slower
    than the emulated processors: otherwise healthy pairs differ by e^0.4, as processors do."""
    MBIT, MTU, NETWORK = 20, 4500, "10.78.0"
    RULES = (10, 100, 200)

    def __init__(self, count):
        super().__init__(count)
        self.switch = os.getpid()
        try:
            self.hosts = [self.hold(["--uts"], f"h{i}") for i in range(count)]
            self.start_switch()
            for i in range(count):
                self.join(i)
            for i in range(count):
                self.wait_for_gid(i)
        except Exception:
            self.close()
            raise

    def device(self, i):
        return f"h{i}"

    def root(self, port):
        return f"203.0.113.1:{port}"

    @staticmethod
    def mac(i):
        return f"02:00:00:00:01:{i:02x}"

    def join(self, i):
        here, table = f"h{i}", str(200 + i)
        run("ip", "link", "add", here, "address", self.mac(i), "mtu", str(self.MTU), "type", "veth", "peer", "name", f"p{i}", "mtu", str(self.MTU))
        run("ip", "link", "set", f"p{i}", "master", "sw", "up")
        run("ip", "link", "set", here, "up")
        run("ip", "address", "add", f"{self.address(i)}/24", "dev", here, "noprefixroute")
        for rule, words in zip(self.RULES, (("iif", here, "lookup", "local"), ("oif", here, "lookup", table), ("from", self.address(i), "lookup", table))):
            run("ip", "rule", "add", "pref", str(rule), *words)
        run("ip", "route", "replace", "local", self.address(i), "dev", here, "table", table)
        run("ip", "route", "replace", f"{self.NETWORK}.0/24", "dev", here, "table", table)
        for k in range(self.count):
            if k != i:
                run("ip", "neigh", "replace", self.address(k), "dev", here, "lladdr", self.mac(k), "nud", "permanent")
        self.limit(self.hosts[i], here)
        self.limit(self.switch, f"p{i}")
        run("rdma", "link", "add", f"hca{i}", "type", "rxe", "netdev", here)

    def wait_for_gid(self, i):
        """Its address is one some moments after the device is there."""
        folder = f"/sys/class/infiniband/hca{i}/ports/1/gids"
        wanted = "ffff:0a4e:00%02x" % (i + 1)
        for _ in range(1000):
            for index in range(10):
                try:
                    with open(f"{folder}/{index}", encoding="utf-8") as file:
                        if file.read().strip().endswith(wanted):
                            return
                except OSError:
                    pass
            time.sleep(0.02)
        raise RuntimeError(f"hca{i} has no GID of {self.address(i)}")

    def close(self):
        super().close()
        for i in range(self.count):
            run("rdma", "link", "delete", f"hca{i}", may_fail=True)
            for rule, words in zip(self.RULES, (("iif", f"h{i}"), ("oif", f"h{i}"), ("from", self.address(i)))):
                run("ip", "rule", "delete", "pref", str(rule), *words, may_fail=True)
            run("ip", "link", "delete", f"h{i}", may_fail=True)
        run("ip", "link", "delete", "sw", may_fail=True)
