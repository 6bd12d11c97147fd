#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Prometheus makes of the agent: the rules and their unit tests, names in rules and dashboard against those that are
exported, promtool's opinion of them, and a Prometheus of this test that scrapes an agent of this test, on loopback.
usage: prometheus.py SLUICED SOURCE_ROOT"""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.parse
import urllib.request

sluiced, root = sys.argv[1:]
deploy = os.path.join(root, "deploy")
rules = os.path.join(deploy, "prometheus", "sluice.rules.yml")
dashboard = os.path.join(deploy, "grafana", "sluice.json")
folder = tempfile.mkdtemp()
started = []


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(what, ask, seconds=20):
    """Asks ten times a second, and returns the first answer that is true."""
    end, last = time.monotonic() + seconds, None
    while time.monotonic() < end:
        try:
            last = ask()
        except OSError as error:
            last = error
        else:
            if last:
                return last
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: {what}; the last answer: {last}")


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf8") as out:
        out.write(text)


def start(name, *command):
    with open(f"{folder}/{name}.log", "wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    started.append(process)
    return process


def get(url, accept=None):
    request = urllib.request.Request(url, headers={"Accept": accept} if accept else {})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode()


def run(*command, **options):
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)
    assert result.returncode == 0, f"{' '.join(command)}: status {result.returncode}\n{result.stdout}{result.stderr}"
    return result.stdout + result.stderr


def sources(state, *but):
    """Lines of [sources]: all are that, but these. What others do on this machine is nobody's business."""
    printed = run(sluiced, "--print-config").split("[sources]\n")[1].split("\n[")[0]
    keys = re.findall(r"# on; off; auto: .*\n#(\w+) = ", printed)
    assert len(keys) >= 3, printed
    return "\n".join(f"{key} = {state}" for key in keys if key not in but)


class Agent:
    """One that watches a made port, which carries until it is told otherwise."""

    def __init__(self):
        self.port, self.folder = free_port(), f"{folder}/agent"
        self.device = f"{self.folder}/rdma/mlx5_0/ports/1"
        write(f"{self.device}/state", "4: ACTIVE\n")
        write(f"{self.device}/rate", "400 Gb/sec (4X NDR)\n")
        write(f"{self.device}/counters/port_xmit_packets", "0\n")
        write(f"{self.device}/counters/port_xmit_data", "0\n")
        self.packets, self.ends = 0, threading.Event()
        write(f"{self.folder}/conf", f"""[store]
path = {self.folder}/state.db
[output]
events = {self.folder}/events
[sources]
period_ms = 100
rdma_root = {self.folder}/rdma
{sources("off", "rdma")}
[api]
socket = {self.folder}/api.sock
http = 127.0.0.1:{self.port}
""")
        start("sluiced", sluiced, "--config", f"{self.folder}/conf")
        until("the agent answers", lambda: get(f"http://127.0.0.1:{self.port}/metrics"))
        self.traffic = threading.Thread(target=self.carry_on, daemon=True)
        self.traffic.start()

    def put(self, name, text):
        """Into the same file, which the agent has open, and at no time is it empty."""
        fd = os.open(f"{self.device}/{name}", os.O_WRONLY)
        os.pwrite(fd, f"{text}\n".encode(), 0)
        os.ftruncate(fd, len(text) + 1)
        os.close(fd)

    def carry(self):
        """A thousand packets of 4 KiB each: in words, as sysfs has it."""
        self.packets += 1000
        self.put("counters/port_xmit_packets", str(self.packets))
        self.put("counters/port_xmit_data", str(self.packets * 1024))

    def carry_on(self):
        while not self.ends.wait(0.1):
            self.carry()

    def stop(self):
        """Nothing is written any more."""
        self.ends.set()
        self.traffic.join()

    def post(self, path):
        """Over the unix socket, on which one may more than read."""
        with socket.socket(socket.AF_UNIX) as to:
            to.settimeout(10)
            to.connect(f"{self.folder}/api.sock")
            to.sendall(f"POST {path} HTTP/1.1\r\nHost: agent\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
            answer = b"".join(iter(lambda: to.recv(65536), b"")).decode()
        assert answer.startswith("HTTP/1.1 200 "), answer


class Prometheus:
    """One whose clock ticks twice a second."""

    def __init__(self, agent):
        self.url = f"http://127.0.0.1:{free_port()}"
        write(f"{folder}/prometheus.yml", f"""
global: {{scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}}
rule_files: [{rules}]
scrape_configs:
  - job_name: sluiced
    static_configs: [{{targets: ['127.0.0.1:{agent.port}']}}]
""")
        start("prometheus", "prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb",
              f"--web.listen-address={self.url.removeprefix('http://')}", "--log.level=warn")
        until("Prometheus is ready", lambda: get(self.url + "/-/ready"))

    def ask(self, path, **query):
        answer = json.loads(get(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}"))
        assert answer["status"] == "success", answer
        return answer["data"]

    def value(self, expression):
        """Of one series; None: there is none."""
        result = self.ask("query", query=expression)["result"]
        assert len(result) <= 1, result
        return float(result[0]["value"][1]) if result else None

    def alerts(self):
        """Labels of those that fire."""
        return [alert["labels"] for alert in self.ask("alerts")["alerts"] if alert["state"] == "firing"]


agent = prometheus = None


def metrics(accept=None):
    return get(f"http://127.0.0.1:{agent.port}/metrics", accept)


# ---- cases ----


def rules_are_right_and_pass_their_unit_tests():
    run("promtool", "check", "rules", rules)
    run("promtool", "test", "rules", "sluice.rules.test.yml", cwd=os.path.dirname(rules))


def each_alert_has_a_unit_test_in_which_it_fires_and_one_in_which_not():
    with open(rules, encoding="utf8") as file:
        names = re.findall(r"- alert: (\w+)", file.read())
    with open(rules.replace(".rules.yml", ".rules.test.yml"), encoding="utf8") as file:
        tests = file.read()
    assert len(names) > 10, names
    for name in names:
        assert re.search(rf"alertname: {name}\n\s*exp_alerts:\n", tests), f"{name} fires in no test"
        assert re.search(rf"alertname: {name}, exp_alerts: \[\]", tests), f"{name} is in no test quiet"


def fatal_checks_are_those_of_the_agent():
    with open(os.path.join(root, "monitor", "check.h"), encoding="utf8") as file:
        rows = re.findall(r'X\(\w+, \w+, "(\w+)", "\w+", (FATAL|DEGRADED),', file.read())
    assert len(rows) > 20, rows
    with open(rules, encoding="utf8") as file:
        (listed,) = re.findall(r'sluice_verdict_active\{check=~"([a-z_|]+)"\}', file.read())
    fatal = {name for name, severity in rows if severity == "FATAL"}
    listed = set(listed.split("|"))
    degraded = {name for name, severity in rows if severity != "FATAL"}
    assert not fatal - listed, f"sluice.rules.yml has not what is FATAL in monitor/check.h: {fatal - listed}"
    assert not degraded & listed, f"sluice.rules.yml has what is not FATAL in monitor/check.h: {degraded & listed}"


def the_dashboard_is_whole():
    with open(dashboard, encoding="utf8") as file:
        board = json.load(file)
    panels = board["panels"]
    ids = [panel["id"] for panel in panels]
    assert len(set(ids)) == len(ids), "a panel's number is there twice"
    variables = {variable["name"] for variable in board["templating"]["list"]}
    for panel in panels:
        assert panel["type"] == "row" or panel["targets"] and panel["description"], panel["title"]
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        for target in panel.get("targets", []):
            used = set(re.findall(r"\$\{?(\w+)", target["expr"]))
            assert used <= variables, (panel["title"], used - variables)
            # Grafana puts the choice in: promtool has to understand what remains, which it says of a rule.
            expression = re.sub(r"\$\w+", "x", target["expr"])
            write(f"{folder}/one.yml", json.dumps({"groups": [{"name": "g", "rules": [{"record": "r", "expr": expression}]}]}))
            run("promtool", "check", "rules", f"{folder}/one.yml")


def promtool_likes_the_metrics():
    for text in (metrics("text/plain"), metrics()):
        said = run("promtool", "check", "metrics", input=text)
        assert said == "", said


def all_exported():
    """Names of families: those of sources too that this machine does not have, which an agent with all of them on exports."""
    write(f"{folder}/all/conf", f"[store]\npath = {folder}/all/state.db\n[output]\nevents =\ntextfile = {folder}/all/sluice.prom\n"
          f"[sources]\n{sources('auto')}\n[api]\nsocket =\n")
    process = start("all", sluiced, "--config", f"{folder}/all/conf")
    until("its metrics are written", lambda: os.path.exists(f"{folder}/all/sluice.prom"))
    process.terminate()
    with open(f"{folder}/all/sluice.prom", encoding="utf8") as file:
        text = file.read()
    run("promtool", "check", "metrics", input=text)
    return set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))


def names(text):
    return set(re.findall(r"(?<![\w:])sluice_\w+(?![\w:])", text))


def rules_and_dashboard_name_what_is_exported():
    exported = all_exported()
    with open(rules, encoding="utf8") as file:
        text = file.read()
    recorded = set(re.findall(r"- record: (\S+)", text))
    expressions = re.findall(r"expr: (?:>-\n((?: {10}.*\n)+)|(.*))", text)
    used = names(" ".join(part for pair in expressions for part in pair))
    with open(dashboard, encoding="utf8") as file:
        board = file.read()
    shown = names(board)
    assert used <= exported, f"rules use what no agent exports: {used - exported}"
    assert shown <= exported, f"the dashboard shows what no agent exports: {shown - exported}"
    asked = set(re.findall(r"[a-z_]+:sluice_\w+:\w+", board))
    assert asked and asked <= recorded, f"the dashboard shows what no rule records: {asked - recorded}"
    # In the other direction: what the agent says of itself, and of verdicts, is of no use unless somebody looks.
    themselves = {name for name in exported if re.match("sluice_(agent|probe|store|config|build|verdict)", name)}
    unseen = themselves - used - shown
    assert not unseen, f"neither a rule nor the dashboard has {unseen}"


def prometheus_scrapes_the_agent():
    global prometheus
    prometheus = Prometheus(agent)

    def health():
        targets = prometheus.ask("targets")["activeTargets"]
        assert not [target for target in targets if target["lastError"]], targets
        return [target["health"] for target in targets] == ["up"]
    until("the target is up", health)
    until("series arrive", lambda: prometheus.value('sluice_port_up{device="mlx5_0",port="1"}') == 1)
    assert prometheus.value("sluice_build_info") == 1
    assert prometheus.value('sluice_verdict_active{check="link_down",subject="mlx5_0:1"}') == 0
    until("the recorded rate", lambda: (prometheus.value("instance_port:sluice_port_transmit_bytes:rate1m") or 0) > 1e6)
    kinds = {name: [entry["type"] for entry in entries] for name, entries in prometheus.ask("metadata").items()}
    assert kinds["sluice_port_up"] == ["gauge"] and kinds["sluice_port_transmit_bytes"] == ["counter"], kinds


def an_injected_fault_fires_and_resolves():
    assert prometheus, "there is no Prometheus"
    assert not prometheus.alerts(), prometheus.alerts()
    agent.put("state", "1: DOWN")
    fired = until("the alert fires", prometheus.alerts)
    (alert,) = [labels for labels in fired if labels["alertname"] == "SluiceNodeUnfit"]
    assert (alert["subject"], alert["check"], alert["class"], alert["severity"]) == ("mlx5_0:1", "link_down", "NICDown", "critical"), alert
    assert not [labels for labels in fired if labels["alertname"] == "SluiceNodeDegraded"], fired
    agent.put("state", "4: ACTIVE")
    # It would clear by itself within minutes; an operator who has mended it does not wait.
    agent.post("/v1/clear?kind=port&subject=mlx5_0:1")
    until("the alert resolves", lambda: not prometheus.alerts())


# ---- TAP ----


def without_prometheus(case):
    return "prometheus and promtool are not here (package prometheus)" if case not in (
        fatal_checks_are_those_of_the_agent, each_alert_has_a_unit_test_in_which_it_fires_and_one_in_which_not) else ""


def main():
    global agent
    cases = [rules_are_right_and_pass_their_unit_tests, each_alert_has_a_unit_test_in_which_it_fires_and_one_in_which_not,
             fatal_checks_are_those_of_the_agent, the_dashboard_is_whole, promtool_likes_the_metrics,
             rules_and_dashboard_name_what_is_exported, prometheus_scrapes_the_agent, an_injected_fault_fires_and_resolves]
    is_there = all(map(shutil.which, ("prometheus", "promtool")))
    failed = 0
    try:
        for number, case in enumerate(cases, 1):
            why = "" if is_there else without_prometheus(case)
            if why:
                print(f"ok {number} - {case.__name__} # SKIP {why}", flush=True)
                continue
            try:
                if agent is None and case in cases[4:]:
                    agent = Agent()
                case()
            except Exception:  # pylint: disable=broad-except
                failed += 1
                print(f"not ok {number} - {case.__name__}")
                logs = [f"{name}: " + open(f"{folder}/{name}", encoding="utf8").read()[-2000:]
                        for name in sorted(os.listdir(folder)) if name.endswith(".log")]
                for line in "\n".join([traceback.format_exc()] + logs).splitlines():
                    print(f"# {line}")
            else:
                print(f"ok {number} - {case.__name__}")
            sys.stdout.flush()
    finally:
        if agent is not None:
            agent.stop()
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)
        for process in reversed(started):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"1..{len(cases)}")
    return failed != 0


sys.exit(main())
