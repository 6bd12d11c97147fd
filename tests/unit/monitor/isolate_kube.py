#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A node tainted and freed of its taint, and its conditions, over the API of Kubernetes as kube_server.py has it.
usage: isolate_kube.py DRIVER [quick]"""
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
# pylint: disable=wrong-import-position
from isolation_driver import Driver, run, wait_for
from kube_server import KEY, Cluster, Server

PROGRAM = sys.argv[1]
FOLDER = tempfile.mkdtemp(prefix="sluice-kube-")
NAMES = ["n1", "n2", "n3", "n4", "n5", "n6"]
NUMBERS = itertools.count()


class Bed:
    """A cluster, its server and the agent of one of its nodes."""

    def __init__(self, cluster=None, server=None, node="n1", environment=None, **more):
        self.number = next(NUMBERS)
        self.cluster = cluster or Cluster(NAMES)
        self.server = server or Server(self.cluster)
        self.owns_server = server is None
        folder = f"{FOLDER}/{self.number}"
        os.makedirs(folder)
        self.token = folder + "/token"
        self.write_token("token-1\n")
        keys = {"plug": "kubernetes", "mode": "act", "hold_s": 5, "share_percent": 50, "times": 32, "node": node,
                "api": f"http://127.0.0.1:{self.server.port}", "token": self.token, "ca": "", "timeout_ms": 8000, **more}
        self.driver = Driver(PROGRAM, folder, environment, **{key: value for key, value in keys.items() if value is not None})

    def write_token(self, text):
        with open(self.token, "w", encoding="ascii") as file:
            file.write(text)

    def __enter__(self):
        self.driver.begin()
        return self

    def __exit__(self, *_):
        self.driver.end()
        if self.owns_server:
            self.server.end()

    def status(self, kind):
        return (self.cluster.condition("n1", kind) or {"status": "none"})["status"]

    def told(self):
        """Until the classes were told for the first time, which leaves the way free for what a case is about."""
        wait_for(lambda: self.cluster.condition("n1", "GPUUnhealthy") is not None, "conditions", more=lambda: self.driver.lines)
        return self

    def clear(self):
        self.driver.say("clear 7")
        time.sleep(0.1)
        self.driver.say("later 6")


def tainted_and_freed():
    with Bed() as bed:
        others = dict(bed.cluster.taints("n1"))
        bed.driver.say("bad 7")
        bed.driver.wait("done")
        taints = bed.cluster.taints("n1")
        assert taints.pop(KEY) == {"key": KEY, "value": "1.3f2a9c1d", "effect": "NoSchedule"}, taints
        assert taints == others, taints
        metadata = bed.cluster.nodes["n1"]["metadata"]
        assert metadata["labels"] == {"kubernetes.io/hostname": "n1", KEY: "1.3f2a9c1d"}, metadata
        assert metadata["annotations"]["sluice/isolated-why"].startswith("GPUUnhealthy 0000:07:00.0: XID 79"), metadata
        wait_for(lambda: bed.status("GPUUnhealthy") == "True", "the condition")
        bed.driver.say("clear 7")
        wait_for(lambda: bed.status("GPUUnhealthy") == "False", "the condition's end")
        assert KEY in bed.cluster.taints("n1")
        bed.driver.say("later 6")
        bed.driver.wait("done", "back")
        assert bed.cluster.taints("n1") == others
        metadata = bed.cluster.nodes["n1"]["metadata"]
        assert metadata["labels"] == {"kubernetes.io/hostname": "n1"} and metadata["annotations"] == {"of": "others"}, metadata
        assert bed.cluster.nodes["n1"]["spec"]["podCIDR"] == "10.0.0.0/24"


def each_class_is_a_condition():
    cluster = Cluster(NAMES)
    cluster.change("n1", lambda node: node["status"]["conditions"].extend([
        {"type": "GPUUnhealthy", "status": "True", "reason": "SluiceVerdict", "message": "of before the boot",
         "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "NICDown", "status": "True", "reason": "KernelHasNoNIC", "message": "of another detector"}]))
    with Bed(cluster) as bed:
        # What was told before a boot is not true any more; what others told is theirs.
        wait_for(lambda: cluster.condition("n1", "GPUUnhealthy")["status"] == "False", "the end of an old one")
        assert cluster.condition("n1", "NICDown")["status"] == "True"
        assert cluster.condition("n1", "NICDown")["reason"] == "KernelHasNoNIC"
        # Each is a request of its own.
        for kind in ("NICDegraded", "FabricLinkSuspect", "RankSlow", "HostUnhealthy"):
            wait_for(lambda kind=kind: (cluster.condition("n1", kind) or {}).get("status") == "False", kind)
        assert cluster.condition("n1", "Ready")["reason"] == "KubeletReady"
        before = dict(cluster.condition("n1", "NICDegraded"))
        bed.driver.say("bad 7")
        wait_for(lambda: cluster.condition("n1", "GPUUnhealthy")["status"] == "True", "the condition")
        one = cluster.condition("n1", "GPUUnhealthy")
        assert one["reason"] == "SluiceVerdict" and one["message"].startswith("sluice[1.3f2a9c1d]: 0000:07:00.0: XID 79: it's"), one
        assert one["lastTransitionTime"] > "2026-01-01T00:00:00Z", one
        assert cluster.condition("n1", "NICDegraded") == before
        bed.driver.wait("done")
        time.sleep(0.3)
        asked = len(cluster.requests)
        time.sleep(0.7)
        assert len(cluster.requests) == asked  # not again and again


def cordoned_by_the_administrator_it_is_left_alone():
    with Bed() as bed:
        bed.cluster.change("n1", lambda node: node["spec"].update(unschedulable=True))
        bed.driver.say("bad 7")
        bed.driver.wait("left_alone")
        bed.clear()
        time.sleep(0.5)
        assert KEY not in bed.cluster.taints("n1") and bed.cluster.nodes["n1"]["spec"]["unschedulable"]
        assert bed.cluster.asked("PATCH", "/nodes/n1/status") == bed.cluster.asked("PATCH")


def a_taint_that_the_administrator_changed_stays():
    with Bed() as bed:
        bed.driver.say("bad 7")
        bed.driver.wait("done")
        bed.cluster.change("n1", lambda node: [taint.update(value="under-repair") for taint in node["spec"]["taints"] if taint["key"] == KEY])
        bed.clear()
        bed.driver.wait("left_alone", "back")
        assert bed.cluster.taints("n1")[KEY]["value"] == "under-repair"


def freed_by_the_administrator_it_is_not_tainted_again():
    with Bed() as bed:
        bed.driver.say("bad 7")
        bed.driver.wait("done")
        bed.cluster.change("n1", lambda node: node["spec"].update(taints=[]))
        bed.driver.say("later 100")
        time.sleep(0.3)
        bed.clear()
        bed.driver.wait("left_alone", "back")
        assert KEY not in bed.cluster.taints("n1")


def somebody_who_was_quicker_loses_nothing():
    with Bed() as bed:
        bed.told()

        def other():
            bed.cluster.change("n1", lambda node: node["spec"]["taints"].append({"key": "other", "effect": "NoExecute"}))
        bed.cluster.faults += [{"method": "PATCH", "part": "/nodes/n1", "do": other}]
        bed.driver.say("bad 7")
        done = bed.driver.wait("done")
        assert done["attempts"] == 1, done
        assert set(bed.cluster.taints("n1")) == {"gpu", "other", KEY}


def for_ever_in_conflict_it_is_tried_later():
    with Bed() as bed:
        bed.told()
        bed.cluster.faults += [{"method": "PATCH", "code": 409, "message": "the object has been modified", "times": 5}]
        bed.driver.say("bad 7")
        failed = bed.driver.wait("failed")
        assert "409" in failed["outcome"] and "the object has been modified" in failed["outcome"], failed
        bed.driver.say("later 2")
        assert bed.driver.wait("done")["attempts"] == 2


def too_many_requests_are_waited_for():
    with Bed() as bed:
        bed.told()
        bed.cluster.faults += [{"method": "PATCH", "code": 429, "wait": "3"}]
        bed.driver.say("bad 7")
        assert "429" in bed.driver.wait("failed")["outcome"]
        refused = bed.cluster.requests[-1]["time"]
        bed.driver.wait("done")
        later = [one["time"] for one in bed.cluster.requests if one["time"] > refused and one["path"].startswith("/api/v1/nodes/n1") and one["method"] == "PATCH" and KEY in one["body"]]
        assert later and later[0] - refused >= 2.9, (refused, later)


def errors_of_the_server_are_tried_again():
    with Bed() as bed:
        bed.told()
        bed.cluster.faults += [{"method": "PATCH", "code": 500}, {"method": "GET", "code": 503}]
        bed.driver.say("bad 7")
        assert "503: etcdserver: request timed out" in bed.driver.wait("failed")["outcome"]
        bed.driver.say("later 2")
        assert "500: etcdserver: request timed out" in bed.driver.wait("failed", count=2)["outcome"]
        assert bed.driver.metric('sluice_isolation_up{plug="kubernetes"}') == 0
        bed.driver.say("later 5")
        assert bed.driver.wait("done")["attempts"] == 3
        wait_for(lambda: bed.driver.metric('sluice_isolation_up{plug="kubernetes"}') == 1, "that it is up")


def a_server_that_hangs_stops_nothing_and_is_named():
    with Bed(timeout_ms=4000) as bed:
        bed.told()
        bed.cluster.faults += [{"method": "GET", "hang": 8}]
        bed.driver.say("bad 7")
        time.sleep(0.2)
        started = time.monotonic()
        bed.driver.metric('sluice_isolation_up{plug="kubernetes"}')
        assert time.monotonic() - started < 2
        late = bed.driver.wait("timed_out")
        assert late["outcome"] == f"Kubernetes: reading this node: http://127.0.0.1:{bed.server.port} did not answer in time", late


def an_answer_that_was_lost_has_no_second_effect():
    with Bed(timeout_ms=4000) as bed:
        bed.told()
        bed.cluster.faults += [{"method": "PATCH", "after": 6}]
        bed.driver.say("bad 7")
        bed.driver.wait("timed_out")
        assert KEY in bed.cluster.taints("n1")
        bed.driver.say("later 2")
        assert bed.driver.wait("done")["attempts"] >= 2
        assert len([one for one in bed.cluster.asked("PATCH") if KEY in one["body"]]) == 1


def killed_while_it_acts_it_acts_once():
    with Bed() as bed:
        bed.told()
        bed.driver.say("bad 7")
        wait_for(lambda: KEY in bed.cluster.taints("n1"), "the taint")
        bed.driver.kill()
        assert bed.driver.results() == ["wanted"], bed.driver.lines
        bed.driver.begin()
        assert bed.driver.wait("done")["attempts"] == 2
        assert len([one for one in bed.cluster.asked("PATCH") if KEY in one["body"]]) == 1
        bed.clear()
        bed.driver.wait("done", "back")


def too_many_are_out():
    with Bed(share_percent=34) as bed:  # of 6 nodes: 2
        bed.cluster.change("n2", lambda node: node["spec"].update(unschedulable=True))
        bed.cluster.change("n3", lambda node: node["metadata"]["labels"].update({KEY: "9.b"}))
        bed.driver.say("bad 7")
        assert bed.driver.wait("refused")["outcome"] == "refused: 2 of 6 nodes are out, and 2 may be"
        assert KEY not in bed.cluster.taints("n1")
        assert bed.driver.metric('sluice_isolation_breaker_open{plug="kubernetes"}') == 1
        bed.cluster.change("n2", lambda node: node["spec"].pop("unschedulable"))
        bed.driver.say("later 60")
        bed.driver.wait("done")
        assert KEY in bed.cluster.taints("n1")


def tainted(cluster):
    return [name for name in cluster.nodes if KEY in cluster.taints(name)]


def who_writes_slowly_was_not_first():
    cluster = Cluster(NAMES)
    server = Server(cluster)
    slow, quick = (Bed(cluster, server, name, share_percent=34) for name in ("n1", "n2"))  # 2 may
    try:
        cluster.change("n3", lambda node: node["spec"].update(unschedulable=True))
        cluster.faults.append({"method": "PATCH", "part": "/nodes/n1", "slow": 4})
        slow.driver.begin()
        slow.driver.say("bad 7")
        wait_for(lambda: not cluster.faults, "the slow write")
        quick.driver.begin()
        quick.driver.say("bad 7")
        quick.driver.wait("done")
        assert "2 of 6 nodes are out" in slow.driver.wait("refused")["outcome"], slow.driver.lines
        assert tainted(cluster) == ["n2"]
    finally:
        slow.driver.end()
        quick.driver.end()
        server.end()


def a_server_that_does_not_count_is_counted_for():
    with Bed(share_percent=50) as bed:  # of 6 nodes: 3
        bed.cluster.counts = False
        for name in ("n2", "n3"):
            bed.cluster.change(name, lambda node: node["spec"].update(unschedulable=True))
        bed.driver.say("bad 7")
        bed.driver.wait("done")


def of_all_nodes_at_once_no_more_are_out_than_may_be():
    names = [f"n{i:02}" for i in range(12)]
    cluster = Cluster(names)
    server = Server(cluster)
    beds = [Bed(cluster, server, name, share_percent=34) for name in names]  # 4
    try:
        for bed in beds:
            bed.driver.begin()
        for bed in beds:
            bed.driver.say("bad 7")
        for bed in beds:
            wait_for(lambda bed=bed: set(bed.driver.results()) & {"done", "refused"}, "an outcome", 30, lambda bed=bed: bed.driver.lines)
        assert len(tainted(cluster)) <= 4, (tainted(cluster), [bed.driver.results() for bed in beds])
        # On a machine where each write takes long all may have gone back. In the end so many are out as may be.
        deadline = time.monotonic() + 40
        while len(tainted(cluster)) < 4 and time.monotonic() < deadline:
            for bed in beds:
                bed.driver.say("later 61")
                time.sleep(0.2)
            time.sleep(2)
        for bed in beds:
            wait_for(lambda bed=bed: bed.driver.results()[-1] in ("done", "refused"), "an outcome", 30, lambda bed=bed: bed.driver.lines)
        assert len(tainted(cluster)) == 4, (tainted(cluster), [bed.driver.results() for bed in beds])
    finally:
        for bed in beds:
            bed.driver.end()
        server.end()


def what_it_may_not_do_is_named():
    with Bed() as bed:
        bed.told()
        bed.cluster.faults += [{"method": "PATCH", "code": 403, "message": 'nodes "n1" is forbidden'}]
        bed.driver.say("bad 7")
        outcome = bed.driver.wait("failed")["outcome"]
        assert 'tainting this node: 403: nodes "n1" is forbidden (it needs get, list, patch of nodes and patch of nodes/status)' in outcome, outcome


def a_new_token_is_read():
    with Bed() as bed:
        bed.told()
        bed.cluster.token = "token-2"
        bed.driver.say("bad 7")
        assert "401: Unauthorized" in bed.driver.wait("failed")["outcome"]
        bed.write_token("token-2")
        bed.driver.say("later 2")
        bed.driver.wait("done")


def answers_that_are_none_are_named():
    for raw in (b"<html>login</html>", b"", b"[]", b'{"metadata": 7}', b'{"metadata":{"name":"n1","resourceVersion":5}}', b"{" * 5000):
        with Bed() as bed:
            bed.told()
            bed.cluster.faults += [{"method": "GET", "raw": raw}]
            bed.driver.say("bad 7")
            assert "something that is no node" in bed.driver.wait("failed")["outcome"], raw


def in_shadow_mode_it_is_not_even_asked():
    with Bed(mode="shadow") as bed:
        bed.driver.say("bad 7")
        bed.driver.wait("shadow")
        bed.clear()
        bed.driver.wait("shadow", "back")
        time.sleep(0.3)
        assert bed.cluster.requests == []


def certificate(name):
    path = f"{FOLDER}/{name}.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", path + ".key", "-out", path + ".crt"], check=True, capture_output=True)
    with open(path, "w", encoding="ascii") as out:
        for end in (".key", ".crt"):
            with open(path + end, encoding="ascii") as part:
                out.write(part.read())
    return path


def as_a_pod_it_finds_the_api_and_trusts_its_certificate_only():
    cluster = Cluster(NAMES)
    server = Server(cluster, certificate("right"))
    certificate("wrong")
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.port), "NODE_NAME": "n4"}
    try:
        with Bed(cluster, server, None, environment, api=None, ca=f"{FOLDER}/right.pem.crt") as bed:
            bed.driver.say("bad 7")
            bed.driver.wait("done")
            assert KEY in cluster.taints("n4")
        cluster.requests.clear()
        with Bed(cluster, server, None, environment, api=None, ca=f"{FOLDER}/wrong.pem.crt") as bed:
            bed.driver.say("bad 7")
            assert "its certificate is not signed by [isolate] ca" in bed.driver.wait("failed")["outcome"]
            assert cluster.requests == []
    finally:
        server.end()


def a_token_does_not_go_in_clear():
    bed = Bed(api="http://10.0.0.1:8080")
    try:
        got = subprocess.run([PROGRAM, bed.driver.folder + "/conf"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10, check=False)
        assert got.returncode == 1 and "[isolate] api is to begin with https://" in got.stderr, got
    finally:
        bed.server.end()


def a_name_that_is_none_becomes_no_address():
    with Bed(node="n1/../../secrets") as bed:
        bed.driver.say("bad 7")
        assert "is no name of a node" in bed.driver.wait("failed")["outcome"]
        assert bed.cluster.requests == []


def a_taint_that_was_forgotten_is_taken_away():
    cluster = Cluster(NAMES)
    cluster.change("n1", lambda node: node["spec"]["taints"].append({"key": KEY, "value": "9.0000aaaa", "effect": "NoSchedule"}))
    with Bed(cluster) as bed:
        wait_for(lambda: bed.driver.metric('sluice_isolation_out{plug="kubernetes"}') == 1, "that it is out")
        bed.driver.say("later 6")
        bed.driver.wait("done", "back")
        assert KEY not in cluster.taints("n1")


CASES = [tainted_and_freed, each_class_is_a_condition, cordoned_by_the_administrator_it_is_left_alone,
         a_taint_that_the_administrator_changed_stays, freed_by_the_administrator_it_is_not_tainted_again,
         somebody_who_was_quicker_loses_nothing, for_ever_in_conflict_it_is_tried_later, too_many_requests_are_waited_for,
         errors_of_the_server_are_tried_again, a_server_that_hangs_stops_nothing_and_is_named,
         an_answer_that_was_lost_has_no_second_effect, killed_while_it_acts_it_acts_once, too_many_are_out,
         who_writes_slowly_was_not_first, a_server_that_does_not_count_is_counted_for, of_all_nodes_at_once_no_more_are_out_than_may_be, what_it_may_not_do_is_named, a_new_token_is_read,
         answers_that_are_none_are_named, in_shadow_mode_it_is_not_even_asked, a_token_does_not_go_in_clear,
         a_name_that_is_none_becomes_no_address, a_taint_that_was_forgotten_is_taken_away]
if shutil.which("openssl"):
    CASES.append(as_a_pod_it_finds_the_api_and_trusts_its_certificate_only)
if sys.argv[2:] == ["quick"]:
    CASES = [case for case in CASES if case not in (of_all_nodes_at_once_no_more_are_out_than_may_be, who_writes_slowly_was_not_first)]
try:
    run(CASES, 8)
finally:
    shutil.rmtree(FOLDER)
