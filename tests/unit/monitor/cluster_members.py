#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How an instance finds agents: by a name server of this test's own, by an API of Kubernetes that is one, and, where
cluster_slurm.sh calls it, by a real sinfo.

usage: cluster_members.py SLUICED [slurm NODE]
"""
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

sluiced, slurm = os.path.abspath(sys.argv[1]), sys.argv[3] if len(sys.argv) > 3 else None
if slurm is None and os.environ.get("CLUSTER_INSIDE") is None:
    if os.geteuid() != 0 or subprocess.run(["unshare", "--net", "--mount", "true"], stderr=subprocess.DEVNULL).returncode != 0:
        print("1..0 # SKIP namespaces of networks and mounts need root")
        sys.exit(0)
    os.environ["CLUSTER_INSIDE"] = "1"
    os.execvp("unshare", ["unshare", "--net", "--mount", "--", sys.executable, os.path.abspath(__file__)] + sys.argv[1:])

folder = tempfile.mkdtemp(prefix="sluice-members.")
os.chmod(folder, 0o755)
begun = []


class Agent(BaseHTTPRequestHandler):
    """Of whichever address it is asked at."""

    def do_GET(self):  # pylint: disable=invalid-name
        name = "at-" + self.connection.getsockname()[0].replace(":", "-").replace(".", "-")
        self.answer({"version": 1, "node": name, "epoch": 5, "seq": int(time.time() * 1000), "time_ms": int(time.time() * 1000),
                     "sources": {"status": {"health": "ok"}}})

    def answer(self, what, status=200):
        body = json.dumps(what).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Kubernetes(Agent):
    """EndpointSlices of one service, a page each, for whoever has the token."""
    asked = []

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        Kubernetes.asked.append(self.path)
        if self.headers.get("Authorization") != "Bearer token-1":
            self.answer({"message": "who are you"}, 401)
        elif url.path != "/apis/discovery.k8s.io/v1/namespaces/sluice/endpointslices" or query["labelSelector"] != "kubernetes.io/service-name=sluiced":
            self.answer({"message": self.path}, 404)
        else:
            page = int(query.get("continue", "0"))
            self.answer({"kind": "EndpointSliceList", "metadata": {"continue": "1"} if page == 0 else {},
                         "items": [{"ports": [{"port": agents}], "endpoints": [{"addresses": [f"127.0.1.{page + 1}"], "nodeName": f"n{page}"}]}]})


def serve(handler, address):
    server = ThreadingHTTPServer(address, handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def name_server():
    """A: 127.0.2.1 and 127.0.2.2. SRV: two hosts, at the agents' port."""
    answers = {1: [bytes([127, 0, 2, 1]), bytes([127, 0, 2, 2])],
               33: [struct.pack(">HHH", 0, 0, agents) + bytes([len(name)]) + name + b"\4test\0" for name in (b"one", b"two")]}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 53))
        while True:
            question, sender = server.recvfrom(512)
            end = question.index(b"\0", 12) + 5
            kind = struct.unpack(">H", question[end - 4:end - 2])[0]
            found = answers.get(kind, [])
            server.sendto(question[:2] + b"\x81\x80" + struct.pack(">HHHH", 1, len(found), 0, 0) + question[12:end] +
                          b"".join(b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 60, len(one)) + one for one in found), sender)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def nodes(members, more="", wanted=2):
    """The nodes that an instance has, once they answer; and what it says of members."""
    http = free_port()
    with open(f"{folder}/conf", "w", encoding="utf-8") as out:
        out.write(f"[cluster]\nhttp = 127.0.0.1:{http}\nmembers = {members}\nport = {agents}\nperiod_ms = 200\ncases =\n{more}")
    with open(f"{folder}/out", "w", encoding="utf-8") as out:
        process = subprocess.Popen([sluiced, "--cluster", "--config", f"{folder}/conf"], stdout=out, stderr=subprocess.STDOUT)
    try:
        for _ in range(100):
            time.sleep(0.1)
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{http}/v1/nodes", timeout=5) as answer:
                    names = [one["name"] for one in json.load(answer)["nodes"] if one["state"] == "ok" and one["observed_ms"]]
                with urllib.request.urlopen(f"http://127.0.0.1:{http}/v1/cluster", timeout=5) as answer:
                    why = json.load(answer)["members_why"]
            except OSError:
                continue
            if len(names) >= wanted or why:
                return names, why
        return names, why
    finally:
        process.kill()
        process.wait()


count, failed = 0, 0


def case(name, got, expected):
    global count, failed
    count += 1
    failed |= got != expected
    print(f"{'ok' if got == expected else 'not ok'} {count} - {name}" + ("" if got == expected else f"\n# {got}"), flush=True)


try:
    if slurm:
        agents = serve(Agent, ("0.0.0.0", 0))
        names, why = nodes("slurm:all", wanted=1)
        case("slurm_names_its_nodes", (len(names) >= 1, why), (True, ""))
        names, why = nodes("slurm:none", wanted=1)
        case("a_partition_that_is_none_is_told", (names, bool(why)), ([], True))
    else:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        for name, text in ("resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"), ("hosts", "127.0.3.1 one.test\n127.0.3.2 two.test\n"), \
                ("nsswitch.conf", "hosts: files dns\n"):
            with open(f"{folder}/{name}", "w", encoding="utf-8") as out:
                out.write(text)
            subprocess.run(["mount", "--bind", f"{folder}/{name}", os.path.realpath(f"/etc/{name}")], check=True)
        agents = serve(Agent, ("0.0.0.0", 0))
        threading.Thread(target=name_server, daemon=True).start()
        time.sleep(0.2)
        case("dns_gives_all_addresses_of_a_name", nodes("dns:agents.test"), (["at-127-0-2-1", "at-127-0-2-2"], ""))
        case("dns_gives_hosts_and_ports_of_srv_records", nodes("srv:_sluice._tcp.test"), (["at-127-0-3-1", "at-127-0-3-2"], ""))
        api = serve(Kubernetes, ("127.0.0.1", 0))
        with open(f"{folder}/token", "w", encoding="utf-8") as out:
            out.write("token-1\n")
        kube = f"[isolate]\napi = http://127.0.0.1:{api}\ntoken = {folder}/token\nca =\n"
        case("kubernetes_gives_endpoints_over_all_pages", nodes("kubernetes:sluice/sluiced", kube), (["at-127-0-1-1", "at-127-0-1-2"], ""))
        names, why = nodes("kubernetes:other/sluiced", kube)
        case("what_kubernetes_refuses_is_told", (names, "404" in why), ([], True))
        case("sources_are_put_together", nodes("dns:agents.test kubernetes:sluice/sluiced", kube, 4)[0],
             ["at-127-0-1-1", "at-127-0-1-2", "at-127-0-2-1", "at-127-0-2-2"])
finally:
    shutil.rmtree(folder, ignore_errors=True)
print(f"1..{count}")
sys.exit(failed)
