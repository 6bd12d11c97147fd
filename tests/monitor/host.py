# SPDX-License-Identifier: Apache-2.0
"""Two hosts on this machine: each a process with namespaces of its own for network, processes and mounts, with its own
/dev/shm and /sys, joined by a veth pair or by a relay between two TAPs. What runs in a host ends with it."""
import ctypes
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

CLONE_NEWNS, CLONE_NEWNET, CLONE_NEWPID = 0x20000, 0x40000000, 0x20000000
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
PR_SET_PDEATHSIG = 1
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP, IFF_LOWER_UP = 0x8913, 0x8914, 1, 0x10000
NETLINK_ROUTE, RTMGRP_LINK, RTM_NEWLINK, ARPHRD_ETHER = 0, 1, 16, 1
LINK = "sluice0"

libc = ctypes.CDLL(None, use_errno=True)


# The link's, so that it is what limits the ranks, and not the few cores that two hosts share here.
RATE_MBIT = 1000


class Unable(Exception):
    """What this machine lacks, as a sentence."""


def checked(result, what):
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def mount(source, target, kind=None, flags=0):
    checked(libc.mount(source.encode(), target.encode(), kind and kind.encode(), flags, None), f"mount {target}")


def now_ns():
    return time.monotonic_ns()


# ---- inside: process 1 of a host ----

def reap_all(children):
    """Processes that others left here, too, but not those that somebody will ask for."""
    for child in children.values():
        child.poll()


def serve(control):
    """Starts what is asked for: argv, environment, and where its output goes; says how it ended."""
    children = {}
    while True:
        message, fds, _, _ = socket.recv_fds(control, 65536, 1)
        if not message:
            os._exit(0)
        request = json.loads(message)
        if request["do"] == "spawn":
            try:
                child = subprocess.Popen(request["argv"], env=request["env"], stdin=subprocess.DEVNULL, stdout=fds[0], stderr=fds[0])
                children[child.pid] = child
                reply = {"pid": child.pid}
            except OSError as error:
                reply = {"error": str(error)}
        else:
            child = children[request["pid"]]
            try:
                reply = {"status": child.wait(request["s"])}
                del children[request["pid"]]
            except subprocess.TimeoutExpired:
                reply = {"status": None}
        for fd in fds:
            os.close(fd)
        reap_all(children)
        control.sendall(json.dumps(reply).encode())


def be_preferred():
    """What runs here goes before what else this machine does, as two hosts would have processors of their own. Priorities
    count inside of a session's group, where the kernel makes such groups, so the group gets it too."""
    try:
        with open("/proc/self/autogroup", "w") as file:
            file.write(str(os.getpriority(os.PRIO_PROCESS, 0)))
    except OSError:
        pass


def become_host(control, folder):
    """In a child: namespaces, then process 1 of them."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all of us; we end when our parent does
    checked(libc.unshare(CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWPID), "unshare")
    inside = os.fork()
    if inside != 0:
        control.close()
        os.waitpid(inside, 0)
        os._exit(0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.setsid()
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount("proc", "/proc", "proc")
    be_preferred()
    mount("tmpfs", "/dev/shm", "tmpfs")
    # /sys/class/net is that of who mounts it; control groups are the machine's.
    mount("/sys/fs/cgroup", folder, None, MS_BIND | MS_REC)
    mount("sysfs", "/sys", "sysfs")
    mount(folder, "/sys/fs/cgroup", None, MS_BIND | MS_REC)
    ends = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    links = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_ROUTE)
    links.bind((0, RTMGRP_LINK))
    socket.send_fds(control, [b"ready"], [ends.fileno(), links.fileno()])
    serve(control)


# ---- outside ----

class Process:
    """One of a host. pid: as the host sees it; outer: as we do."""

    def __init__(self, host, argv, env, on_line):
        self.host, self.lines, self.on_line = host, [], on_line
        out, its = os.pipe()
        reply = host.ask({"do": "spawn", "argv": argv, "env": env}, its)
        os.close(its)
        if "error" in reply:
            os.close(out)
            raise Unable(f"{argv[0]} cannot be started: {reply['error']}")
        self.pid = reply["pid"]
        self.outer = host.outer_of(self.pid)
        self.status = None
        self.reader = threading.Thread(target=self.read, args=(out,), daemon=True)
        self.reader.start()

    def read(self, fd):
        with open(fd, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                at = now_ns()
                self.lines.append((at, line.rstrip("\n")))
                if self.on_line is not None:
                    self.on_line(at, line.rstrip("\n"))

    def signal(self, number):
        if self.status is None and self.outer is not None:
            try:
                os.kill(self.outer, number)
            except ProcessLookupError:
                pass

    def wait(self, seconds):
        """None: it is still there."""
        if self.status is None:
            self.status = self.host.ask({"do": "wait", "pid": self.pid, "s": seconds})["status"]
        if self.status is not None:
            self.reader.join(2)
        return self.status

    def end(self, seconds=3):
        """Well, or else."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        if self.wait(seconds) is None:
            self.signal(signal.SIGKILL)
            self.wait(3)
        return self.status

    def text(self):
        return "\n".join(line for _, line in self.lines)

    def schedstat(self):
        """Nanoseconds on a processor and waiting for one, of all its threads."""
        run = wait = 0
        try:
            for thread in os.listdir(f"/proc/{self.outer}/task"):
                with open(f"/proc/{self.outer}/task/{thread}/schedstat") as file:
                    fields = file.read().split()
                run += int(fields[0])
                wait += int(fields[1])
        except (OSError, IndexError, ValueError):
            pass
        return run, wait


class Host:
    def __init__(self, name, number, folder):
        self.name, self.folder = name, os.path.join(folder, name)
        self.address, self.number = f"10.77.0.{number}", number
        self.lock = threading.Lock()
        os.makedirs(os.path.join(self.folder, "cgroup"))
        self.control, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        sys.stdout.flush()
        sys.stderr.flush()
        self.outer = os.fork()
        if self.outer == 0:
            try:
                self.control.close()
                become_host(its, os.path.join(self.folder, "cgroup"))
            except BaseException as error:
                its.sendall(str(error).encode())
            finally:
                os._exit(1)
        its.close()
        said, fds, _, _ = socket.recv_fds(self.control, 1024, 2)
        if said != b"ready":
            raise Unable(f"no host of namespaces can be made here: {said.decode() or 'it ended'}")
        self.ends, self.links = socket.socket(fileno=fds[0]), socket.socket(fileno=fds[1])
        self.carrier = []  # (when, whether there is one), as the kernel told us
        with open(f"/proc/{self.outer}/task/{self.outer}/children") as file:
            self.init = int(file.read().split()[0])

    def ask(self, request, *fds):
        with self.lock:
            socket.send_fds(self.control, [json.dumps(request).encode()], list(fds))
            return json.loads(self.control.recv(65536))

    def outer_of(self, pid):
        """Of a process of the host, as we see it: one of the children of its process 1."""
        try:
            with open(f"/proc/{self.init}/task/{self.init}/children") as file:
                children = file.read().split()
            for child in reversed(children):
                with open(f"/proc/{child}/status") as file:
                    for line in file:
                        if line.startswith("NSpid:") and int(line.split()[-1]) == pid:
                            return int(child)
        except OSError:
            pass
        return None

    def start(self, argv, env=None, on_line=None):
        base = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
        return Process(self, argv, {**base, **(env or {})}, on_line)

    def run(self, *argv, may_fail=False):
        process = self.start(list(argv))
        status = process.wait(10)
        if status != 0 and not may_fail:
            raise Unable(f"{' '.join(argv)} failed: {process.text() or status}")
        return process.text()

    def set_link(self, up):
        """By one system call, so that the caller knows to a fraction of a millisecond when: (before, after)."""
        request = struct.pack("16sh14x", LINK.encode(), 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(self.ends, SIOCGIFFLAGS, request))[1]
        flags = flags | IFF_UP if up else flags & ~IFF_UP
        request = struct.pack("16sh14x", LINK.encode(), flags)
        before = now_ns()
        fcntl.ioctl(self.ends, SIOCSIFFLAGS, request)
        return before, now_ns()

    def watch(self):
        """What the kernel tells of the link, and when: it is late where its own work has to wait for a processor."""
        def read():
            while True:
                try:
                    message = self.links.recv(65536)
                except OSError:
                    return
                kind = struct.unpack_from("H", message, 4)[0]
                device, flags = struct.unpack_from("xxHxxxxI", message, 16)
                if kind == RTM_NEWLINK and device == ARPHRD_ETHER:
                    self.carrier.append((now_ns(), flags & IFF_LOWER_UP != 0))
        threading.Thread(target=read, daemon=True).start()

    def has_carrier(self):
        """The kernel says so a moment after the link is up."""
        try:
            root = f"/proc/{self.init}/root"  # of the host's own mounts: sysfs is of one network namespace
            with open(f"{root}/sys/class/net/{LINK}/operstate") as file:
                return file.read().strip() in ("up", "unknown")
        except OSError:
            return False

    def wait_for_carrier(self):
        deadline = time.monotonic() + 5
        while not self.has_carrier():
            if time.monotonic() > deadline:
                raise Unable(f"the link of host {self.name} has no carrier after 5 s")
            time.sleep(0.01)

    def bytes_moved(self):
        try:
            with open(f"/proc/{self.init}/net/dev") as file:
                for line in file:
                    if line.strip().startswith(LINK + ":"):
                        fields = line.split(":")[1].split()
                        return int(fields[0]) + int(fields[8])
        except OSError:
            pass
        return 0

    def close(self):
        self.control.close()
        try:
            os.kill(self.init, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.waitpid(self.outer, 0)
        self.ends.close()


class Group:
    """A control group of the machine, of one hierarchy of version 1."""

    def __init__(self, hierarchy, name):
        self.path = f"/sys/fs/cgroup/{hierarchy}/{name}"
        try:
            os.mkdir(self.path)
        except OSError as error:
            raise Unable(f"no control group of {hierarchy} can be made here: {error}") from error

    def write(self, key, value):
        with open(f"{self.path}/{key}", "w") as file:
            file.write(str(value))

    def close(self):
        """Those in it go back to the root."""
        root = os.path.dirname(self.path)
        for _ in range(50):
            try:
                with open(f"{self.path}/cgroup.procs") as file:
                    pids = file.read().split()
                for pid in pids:
                    with open(f"{root}/cgroup.procs", "w") as file:
                        file.write(pid)
                os.rmdir(self.path)
                return
            except OSError:
                time.sleep(0.02)


def shape(host, rate, verb="change", limit="latency 50ms"):
    """The rate of what a host sends: "200mbit"."""
    host.run("tc", "qdisc", verb, "dev", LINK, "root", "tbf", "rate", rate, "burst", "256kb", *limit.split())


def join_by_veth(a, b):
    """GRO on both ends, as without it this kernel's veth pairs show thousands of retransmits for nothing."""
    # By processes as we see them, so not from inside. Its two ends have numbers that differ: of a link whose number is that of
    # its other end, as of a NIC, the kernel tells once a second, all links of the machine together (net/core/link_watch.c).
    made = subprocess.run(["nsenter", f"--net=/proc/{a.init}/ns/net", "ip", "link", "add", LINK, "index", "77", "type", "veth", "peer", "name", LINK,
                           "netns", str(b.init)], capture_output=True, text=True)
    if made.returncode != 0:
        raise Unable(f"no veth pair can be made here: {made.stderr.strip()}")
    for host in (a, b):
        host.run("ip", "link", "set", "lo", "up")
        host.run("ip", "addr", "add", f"{host.address}/24", "dev", LINK)
        host.run("ethtool", "-K", LINK, "gro", "on")
        # What is lost is a packet of this machine, of up to 64 KiB; so that 0.1 % of them are some each second.
        host.run("ip", "link", "set", "dev", LINK, "gso_max_size", "16384")
        shape(host, f"{RATE_MBIT}mbit", "add")
        host.run("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", may_fail=True)
        host.run("ip", "link", "set", LINK, "up")
