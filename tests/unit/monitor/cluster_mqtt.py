#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real agents that publish to a broker of this test's own (mosquitto), with TLS and passwords, and an instance that
subscribes: what is kept, last wills, a broker that goes and comes back, and who is let in.

usage: cluster_mqtt.py SLUICED
"""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

sluiced = os.path.abspath(sys.argv[1])
mosquitto = shutil.which("mosquitto", path=os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin")
for program, package in (mosquitto, "mosquitto"), (shutil.which("mosquitto_passwd"), "mosquitto"), (shutil.which("openssl"), "openssl"):
    if program is None:
        print(f"1..0 # SKIP a broker, or what makes its keys, is not installed (package {package})")
        sys.exit(0)

# Links of others, which come and go, are no part of this: where it may, it has a network of its own.
if os.environ.get("MQTT_INSIDE") is None and os.geteuid() == 0 and subprocess.run(["unshare", "--net", "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
    os.environ["MQTT_INSIDE"] = "1"
    os.execvp("unshare", ["unshare", "--net", "--", sys.executable, os.path.abspath(__file__)] + sys.argv[1:])
if os.environ.get("MQTT_INSIDE"):
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
LONG = 60  # s, for what takes some: the machine may have much else to do

folder = tempfile.mkdtemp(prefix="sluice-mqtt.")
os.chmod(folder, 0o755)
begun = {}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


PORT, HTTP = free_port(), free_port()


def write(name, text):
    with open(f"{folder}/{name}", "w", encoding="utf-8") as out:
        out.write(text)
    return f"{folder}/{name}"


def begin(name, *command):
    with open(f"{folder}/{name}.out", "a", encoding="utf-8") as out:
        begun[name] = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)


def end(name, sign=signal.SIGKILL):
    begun[name].send_signal(sign)
    begun[name].wait()


def openssl(*words):
    subprocess.run(["openssl", *words], check=True, cwd=folder, stderr=subprocess.DEVNULL)


def broker():
    begin("broker", mosquitto, "-c", f"{folder}/mosquitto.conf")


def off():
    """All sources of the agent: the machine is others' business."""
    lines, inside, is_next = [], False, False
    for line in subprocess.run([sluiced, "--print-config"], capture_output=True, text=True, check=True).stdout.splitlines():
        if line.startswith("["):
            inside = line == "[sources]"
        elif inside and line.startswith("# on; off; auto"):
            is_next = True
        elif is_next:
            is_next = False
            if not line.startswith("#link "):
                lines.append(line.lstrip("#").split(" ")[0] + " = off")
    return "\n".join(lines)


def mqtt(user, password="secret", ca="ca.pem"):
    return f"[mqtt]\nbroker = localhost:{PORT}\nca = {folder}/{ca}\nuser = {user}\npassword_file = {write(f'password-{user}-{password}', password)}\nkeepalive_s = 5\nperiod_ms = 300\nrefresh_s = 1\n"


def agent(name):
    begin(name, sluiced, "--config", write(f"{name}.conf", f"[store]\npath = {folder}/{name}.db\n[output]\nevents =\n[sources]\nperiod_ms = 300\n{off()}\n"
                                          f"[api]\nsocket =\n{mqtt(name)}node = {name}\n"))


def instance(extra):
    begin("instance", sluiced, "--cluster", "--config", write("instance.conf", f"{extra}[cluster]\nhttp = 127.0.0.1:{HTTP}\nsilent_s = 120\nconfirm_s = 1\ninstance = one\ncases = {folder}/cases\n"))


def get(path):
    with urllib.request.urlopen(f"http://127.0.0.1:{HTTP}{path}", timeout=5) as answer:
        return json.load(answer)


def until(seconds, what):
    since, got = time.monotonic(), None
    while time.monotonic() - since < seconds:
        try:
            got = what()
        except (OSError, KeyError) as error:
            got = error
        if got and not isinstance(got, Exception):
            return got
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: {got}")


def states():
    return {one["name"]: one["state"] for one in get("/v1/nodes")["nodes"]}


# ---- cases ----

def agents_and_an_instance_meet_over_tls():
    instance(mqtt("one"))
    until(LONG, lambda: set(states().values()) == {"ok"} and set(states()) == {"a", "b"})
    state = get("/v1/cluster")["mqtt"]
    assert state["up"], state
    until(LONG, lambda: get("/v1/cluster")["mqtt"]["messages"] > 5)


def a_last_will_tells_of_a_dead_agent_at_once():
    end("b")
    since = time.monotonic()
    verdict = until(LONG, lambda: [one for one in get("/v1/verdicts?open=1")["verdicts"] if one["class"] == "node_silent"])[0]
    assert (verdict["class"], verdict["node"]) == ("node_silent", "b"), verdict
    assert "the broker lost its agent" in verdict["evidence"][0], verdict
    print(f"# {time.monotonic() - since:.1f} s after it was killed, of which 1 s is confirm_s")


def an_agent_that_begins_anew_is_alive():
    agent("b")
    until(LONG, lambda: states()["b"] == "ok" and not get("/v1/verdicts?open=1")["verdicts"])


def an_agent_that_ends_says_so():
    end("b", signal.SIGTERM)
    until(LONG, lambda: states()["b"] == "silent")
    agent("b")
    until(LONG, lambda: states()["b"] == "ok")


def a_new_instance_has_what_the_broker_kept():
    end("instance")
    end("a", signal.SIGTERM)
    instance(mqtt("one"))
    until(LONG, lambda: states() == {"a": "silent", "b": "ok"})
    agent("a")
    until(LONG, lambda: states()["a"] == "ok")


def without_a_broker_nobody_becomes_silent():
    end("broker")
    until(LONG, lambda: not get("/v1/cluster")["mqtt"]["up"])
    try:
        get("/healthz")
        raise AssertionError("healthy")
    except urllib.error.HTTPError as error:
        assert error.code == 503, error.code
    assert set(states().values()) == {"ok"}, states()


def all_come_back_to_a_broker_that_forgot_all():
    broker()
    before = get("/v1/cluster")["observations"]
    until(LONG, lambda: get("/v1/cluster")["mqtt"]["up"])
    until(LONG, lambda: get("/v1/cluster")["observations"] > before + 4)
    until(LONG, lambda: set(states().values()) == {"ok"})


def a_node_does_not_speak_for_another():
    # The broker's list lets it write where it likes; the instance compares.
    body = '{"version":1,"node":"a","epoch":9999999999999,"seq":1,"time_ms":1,"sources":{"status":{"health":"bad"}}}'
    subprocess.run(["mosquitto_pub", "-V", "mqttv5", "-h", "localhost", "-p", str(PORT), "--cafile", f"{folder}/ca.pem", "-u", "one", "-P", "secret",
                    "-t", "sluice/v1/node/b/status", "-m", body], check=True)
    until(LONG, lambda: get("/v1/cluster")["observations_refused"] > 0)
    assert states()["a"] == "ok", states()


def wrong_keys_and_passwords_are_told():
    end("instance")
    for extra, word in (mqtt("one", ca="other.pem"), ""), (mqtt("one", password="wrong"), "authori"):
        instance(extra)
        why = until(LONG, lambda: [get("/v1/cluster")["mqtt"]["why"]] if get("/v1/cluster")["mqtt"]["why"] != "not connected yet" else None)[0]
        assert why and word in why.lower() and not get("/v1/cluster")["mqtt"]["up"], why
        print(f"# {why}")
        end("instance")


CASES = [agents_and_an_instance_meet_over_tls, a_last_will_tells_of_a_dead_agent_at_once, an_agent_that_begins_anew_is_alive, an_agent_that_ends_says_so,
         a_new_instance_has_what_the_broker_kept, without_a_broker_nobody_becomes_silent, all_come_back_to_a_broker_that_forgot_all,
         wrong_keys_and_passwords_are_told]
if shutil.which("mosquitto_pub"):
    CASES.insert(-1, a_node_does_not_speak_for_another)
failed = 0
try:
    for name in "ca", "other":
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")
    write("san", "subjectAltName = DNS:localhost,IP:127.0.0.1\n")
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "san", "-out", "server.pem")
    write("passwords", "".join(f"{user}:secret\n" for user in ("a", "b", "one")))
    subprocess.run(["mosquitto_passwd", "-U", f"{folder}/passwords"], check=True)
    write("mosquitto.conf", f"listener {PORT}\nallow_anonymous false\npassword_file {folder}/passwords\ncafile {folder}/ca.pem\ncertfile {folder}/server.pem\n"
          f"keyfile {folder}/server.key\nmax_queued_messages 0\npersistence false\nuser root\n")
    broker()
    agent("a")
    agent("b")
    for number, case in enumerate(CASES, 1):
        try:
            case()
            print(f"ok {number} - {case.__name__}", flush=True)
        except Exception as error:  # pylint: disable=broad-except
            failed = 1
            print(f"not ok {number} - {case.__name__}\n# {type(error).__name__}: {str(error)[:1000]}", flush=True)
    if failed:
        for name in begun:
            with open(f"{folder}/{name}.out", encoding="utf-8") as out:
                print("".join(f"# {name}: {line}" for line in out.readlines()[-6:]))
finally:
    for process in begun.values():
        if process.poll() is None:
            process.kill()
        process.wait()
    shutil.rmtree(folder, ignore_errors=True)
print(f"1..{len(CASES)}")
sys.exit(failed)
