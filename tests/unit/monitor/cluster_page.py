#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page of an instance in a browser without a screen, beside simulated agents of 64 nodes: 512 ranks of a job, of which
one hangs and one link is slow, a node that does not answer, a port that flaps. Checks what stands in the page; draws it,
where a folder is given.

usage: cluster_page.py SLUICED [SCREENSHOTS]
"""
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

sluiced = os.path.abspath(sys.argv[1])
shots = sys.argv[2] if len(sys.argv) > 2 else None
NODES, RANKS, HUNG, SLOW = 64, 8, 203, 77
SIZE = NODES * RANKS
BAD = '<img src=x onerror="document.title=1">'  # a job of this name runs, too

browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if browser is None:
    print("1..0 # SKIP no chromium is installed (package chromium)")
    sys.exit(0)

begun = time.time()


def path(rank, peer):
    slow = 30 if rank == SLOW and peer == (SLOW + 1) % SIZE else 1
    return {"name": f"mlx5_{rank % RANKS}:1 > {peer}", "state": "up", "communicator": "c0", "peer": peer, "sent_bytes": 1 << 30, "sent_messages": 1000,
            "message_ns": (12000 + 3000 * ((rank * 7 + peer) % 5)) * slow, "resent": 9 if slow > 1 else 0, "failures": 0}


def rank(number):
    hung = number == HUNG
    out = {"pid": 1000 + number, "job": "llm-70b", "program": "python", "rank": number, "size": SIZE,
           "communicators": [{"id": "c0", "rank": number, "size": SIZE, "collectives": 998 if hung else 999, "ended": 998}],
           "paths": [path(number, peer % SIZE) for peer in (number + 1, number - 1, number + RANKS, number - RANKS, number + 64)]}
    if not hung:
        out["waits"] = {"communicator": "c0", "operation": "allreduce", "number": 999, "elements": 1 << 20, "type": "bf16", "peer": (number + 1) % SIZE,
                        "doing": "waits for a message of", "for_seconds": 20 + time.time() - begun, "idle_seconds": 20}
    return out


def observation(node):
    now, verdicts, t = time.time(), [], time.time() - begun
    if node == 9:
        verdicts = [{"id": 4, "opened_ms": int(begun * 1000) - 90000, "kind": "port", "subject": "mlx5_3:1", "check": "link_flap", "class": "NICDegraded",
                     "fatal": False, "acked": False, "text": "the link went down and came back 3 times, 1.2 s the last time"}]
    if node == HUNG // RANKS:
        verdicts = [{"id": 8, "opened_ms": int(begun * 1000) - 20000, "kind": "process", "subject": f"pid {1000 + HUNG}", "check": "stopped", "class": "RankSlow",
                     "fatal": False, "acked": False, "text": "the process is stopped by a signal"}]
    ports = [{"subject": f"mlx5_{i}:1", "up": not (node == 9 and i == 3 and int(t) % 7 == 0), "speed": 400000000000, "sent": int(t * 3e10 * (1 + 0.3 * ((int(t) + i) % 3))),
              "received": int(t * 2.5e10), "flaps": int(t / 7) if node == 9 and i == 3 else 0, "errors": 0, "state": "bad" if node == 9 and i == 3 else "ok"} for i in range(4)]
    ranks = [rank(node * RANKS + i) for i in range(RANKS)]
    if node == 5:
        ranks.append({"pid": 7, "job": BAD, "rank": 0, "size": 1, "communicators": []})
    return {"version": 1, "node": f"gpu{node:03}", "boot_id": "b", "epoch": 5, "seq": int(t * 1000) + 1, "time_ms": int(now * 1000),
            "sources": {"status": {"health": "degraded" if verdicts else "ok", "fresh": True, "why": "", "agent_version": "0.1.0", "verdicts": verdicts},
                        "ports": {"ports": ports}, "ranks": {"ranks": ranks}}}


class Server(BaseHTTPRequestHandler):
    def do_GET(self):  # pylint: disable=invalid-name
        body = json.dumps(observation(int(self.connection.getsockname()[0].rsplit(".", 1)[1]) - 1)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


folder = tempfile.mkdtemp(prefix="sluice-page.")
server = ThreadingHTTPServer(("0.0.0.0", 0), Server)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
port = server.server_address[1]
with ThreadingHTTPServer(("127.0.0.1", 0), Server) as probe:
    http = probe.server_address[1]


def get(what):
    with urllib.request.urlopen(f"http://127.0.0.1:{http}{what}", timeout=10) as answer:
        return json.load(answer)


def browse(*options, fragment="once"):
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={folder}/browser",
               "--virtual-time-budget=6000", "--run-all-compositor-stages-before-draw", *options, f"http://127.0.0.1:{http}/#{fragment}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, env={**os.environ, "HOME": folder}, check=False).stdout


count, failed = 0, 0


def case(name, good, why=""):
    global count, failed
    count += 1
    failed |= not good
    print(f"{'ok' if good else 'not ok'} {count} - {name}" + ("" if good else f"\n# {why}"), flush=True)


with open(f"{folder}/members", "w", encoding="utf-8") as out:
    # The last one is nobody.
    out.write("".join(f"127.1.0.{i + 1}:{port}\n" for i in range(NODES)) + "127.1.0.250:9 # nobody\n")
with open(f"{folder}/conf", "w", encoding="utf-8") as out:
    out.write(f"[cluster]\nhttp = 127.0.0.1:{http}\nmembers = file:{folder}/members\nperiod_ms = 1000\nsilent_s = 25\ntimeout_ms = 20000\nstall_s = 10\nconfirm_s = 1\ninstance = one\ncases = {folder}/cases\n")
with open(f"{folder}/out", "w", encoding="utf-8") as out:
    process = subprocess.Popen([sluiced, "--cluster", "--config", f"{folder}/conf"], stdout=out, stderr=subprocess.STDOUT)
try:
    # Until all is there that the page is to show; what it takes depends on what else the machine does.
    since = time.monotonic()
    while time.monotonic() - since < 150:
        time.sleep(0.2)
        try:
            found = get("/v1/verdicts?open=1")["verdicts"]
            if len(found) >= 4 and any(one["job"] and one["bundle"] for one in found) and any(one["class"] == "node_silent" for one in found) \
                    and sum(len(one["samples"]) for one in get("/v1/ports?name=gpu009")["ports"]) >= 20:
                break
        except OSError:
            pass
    page = browse("--dump-dom", "--window-size=1400,1800")
    plain = html.unescape(re.sub(r"<[^>]*>", " ", page.split("<script>")[0]))
    case("all_that_it_asks_for_is_answered", 'data-failed="0"' in page and 'data-shown="1"' in page, re.findall(r'data-[a-z]+="[^"]*"', page)[:9])
    case("the_verdict_and_its_evidence_are_shown", f"rank {HUNG} (host gpu{HUNG // RANKS:03})" in plain and f"pid {1000 + HUNG}, stopped" in plain, plain[:2000])
    case("the_graph_names_who_waits_and_for_whom", "511 ranks wait in all" in plain and f"rank {HUNG}: accused" in plain, plain[-1500:])
    case("the_matrix_is_scaled_by_its_times", re.search(r"12\.0 µs.*720\.0 µs|12\.0 µs.*\d+\.\d µs \(log\)", plain) is not None, plain[-1500:])
    case("the_slowest_link_leads", f"rank {SLOW} gpu{SLOW // RANKS:03} rank {SLOW + 1}" in re.sub(r"\s+", " ", plain), plain[-1500:])
    case("a_silent_node_and_a_flapping_port_are_shown", "127.1.0.250-9" in plain and "NICDegraded" in plain, plain[:2000])
    case("the_chosen_node_has_its_history", re.search(r"mlx5_0:1: up, 400 Gbit/s.*sent \d", plain) is not None and '<path class="area"' in page, plain[-1500:])
    case("names_of_others_are_text_and_nothing_else", "<img" not in page and BAD in html.unescape(page), "a job's name became a part of the page")
    case("its_language_of_colours_has_words_beside_it", all(word in plain for word in ("degraded", "silent", "open verdicts")))
    if shots:
        os.makedirs(shots, exist_ok=True)
        browse("--window-size=1400,1800", f"--screenshot={shots}/page-light.png")
        browse("--window-size=1400,1800", "--force-dark-mode", "--enable-features=WebContentsForceDark", "--blink-settings=preferredColorScheme=0",
               f"--screenshot={shots}/page-dark.png")
        browse("--window-size=412,3300", f"--screenshot={shots}/page-phone.png")
finally:
    process.kill()
    process.wait()
    shutil.rmtree(folder, ignore_errors=True)
print(f"1..{count}")
sys.exit(failed)
