# SPDX-License-Identifier: Apache-2.0
"""Nodes drained and undrained in a Slurm of this script's own: one host with its daemons, keys, ports and files, and
nodes beside it that nobody runs. Driven by isolate_slurm.sh, which starts that Slurm.
usage: isolate_slurm.py DRIVER FOLDER NODE [quick]"""
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from isolation_driver import Driver, run, wait_for  # pylint: disable=wrong-import-position

PROGRAM, FOLDER, NODE = sys.argv[1:4]
ROOM = {"plug": "slurm", "mode": "act", "hold_s": 5, "share_percent": 50, "times": 32}
count = 0


def scontrol(*words):
    return subprocess.run(["scontrol", *words], check=True, capture_output=True, text=True, timeout=20).stdout


def node(name=NODE):
    """State and reason, as Slurm has them."""
    fields = {}
    for line in scontrol("show", "node", name).splitlines():
        key, _, value = line.strip().partition("=")
        fields[key] = value
    return fields["State"].split()[0], fields.get("Reason", "")


def back_to_normal():
    for name in [NODE] + [f"ghost{i}" for i in range(1, 6)]:
        if "DRAIN" in node(name)[0]:
            scontrol("update", f"nodename={name}", "state=undrain")


def driver(name=NODE, environment=None, **more):
    global count  # pylint: disable=global-statement
    count += 1
    back_to_normal()
    return Driver(PROGRAM, f"{FOLDER}/{count}", environment, **{**ROOM, "node": name, **more})


def drained_and_undrained():
    with_driver = driver().begin()
    try:
        with_driver.say("bad 7")
        done = with_driver.wait("done")
        assert done["node"] == NODE and done["attempts"] == 1, done
        state, reason = node()
        assert "DRAIN" in state, state
        assert reason.startswith("sluice[1.3f2a9c1d]: GPUUnhealthy 0000:07:00.0: XID 79: it?s ?fallen off the bus?; state=resume"), reason
        with_driver.say("clear 7")
        time.sleep(0.3)
        assert "DRAIN" in node()[0]
        with_driver.say("later 5")
        with_driver.wait("done", "back")
        state, reason = node()
        assert "DRAIN" not in state, state
    finally:
        with_driver.end()


def drained_by_the_administrator_it_is_left_alone():
    with_driver = driver().begin()
    try:
        scontrol("update", f"nodename={NODE}", "state=drain", "reason=a new fan")
        with_driver.say("bad 7")
        with_driver.wait("left_alone")
        assert node()[1].startswith("a new fan ["), node()
        with_driver.say("clear 7", "later 10")
        time.sleep(0.5)
        assert "DRAIN" in node()[0] and with_driver.results("back") == []
    finally:
        with_driver.end()


def with_a_reason_that_the_administrator_changed_it_stays_drained():
    with_driver = driver().begin()
    try:
        with_driver.say("bad 7")
        with_driver.wait("done")
        scontrol("update", f"nodename={NODE}", "reason=mine now: sluice[1.3f2a9c1d]: no")
        with_driver.say("clear 7", "later 1")
        time.sleep(0.1)
        with_driver.say("later 10")
        with_driver.wait("left_alone", "back")
        assert "DRAIN" in node()[0] and node()[1].startswith("mine now"), node()
    finally:
        with_driver.end()


def resumed_by_the_administrator_it_is_not_drained_again():
    with_driver = driver().begin()
    try:
        with_driver.say("bad 7")
        with_driver.wait("done")
        scontrol("update", f"nodename={NODE}", "state=resume")
        with_driver.say("later 100")
        time.sleep(0.5)
        assert "DRAIN" not in node()[0]
        with_driver.say("clear 7")
        time.sleep(0.1)
        with_driver.say("later 10")
        with_driver.wait("left_alone", "back")
    finally:
        with_driver.end()


def killed_while_it_drains_it_drains_once():
    with_driver = driver().begin()
    try:
        with_driver.say("bad 7")
        wait_for(lambda: "DRAIN" in node()[0], "a drained node")
        with_driver.kill()  # while it waits for what others have done
        before = node()
        assert with_driver.results() == ["wanted"], with_driver.lines
        with_driver.begin()
        done = with_driver.wait("done")
        assert done["attempts"] == 2 and done["key"].endswith("/1/out"), done
        assert node() == before, (before, node())  # the time of the reason, too
        with_driver.say("clear 7", "later 1")
        time.sleep(0.1)
        with_driver.say("later 10")
        with_driver.wait("done", "back")
    finally:
        with_driver.end()


def too_many_are_out():
    with_driver = driver(share_percent=34).begin()  # of 6 nodes: 2
    try:
        for name in ("ghost1", "ghost2"):
            scontrol("update", f"nodename={name}", "state=drain", "reason=a new fan")
        with_driver.say("bad 7")
        refused = with_driver.wait("refused")
        assert refused["outcome"] == "refused: 2 of 6 nodes are out, and 2 may be", refused
        assert "DRAIN" not in node()[0]
        assert with_driver.metric('sluice_isolation_breaker_open{plug="slurm"}') == 1
        scontrol("update", "nodename=ghost1", "state=undrain")
        with_driver.say("later 60")
        with_driver.wait("done")
        assert "DRAIN" in node()[0]
        assert with_driver.metric('sluice_isolation_breaker_open{plug="slurm"}') == 0
    finally:
        with_driver.end()


def of_all_nodes_at_once_no_more_are_out_than_may_be():
    names = [NODE] + [f"ghost{i}" for i in range(1, 6)]
    drivers = [driver(name, share_percent=34).begin() for name in names]
    try:
        for one in drivers:
            one.say("bad 7")
        for one in drivers:
            wait_for(lambda one=one: set(one.results()) & {"done", "refused"}, "an outcome", 30, lambda one=one: one.lines)
        out = [name for name in names if "DRAIN" in node(name)[0]]
        assert len(out) == 2, (out, [one.results() for one in drivers])
    finally:
        for one in drivers:
            one.end()


def in_shadow_mode_nothing_happens():
    with_driver = driver(mode="shadow").begin()
    try:
        with_driver.say("bad 7")
        with_driver.wait("shadow")
        time.sleep(0.5)
        assert "DRAIN" not in node()[0] and "sluice" not in node()[1], node()
    finally:
        with_driver.end()


def a_drain_that_was_forgotten_is_undone():
    """The store was lost; the mark in the reason says whose it is."""
    scontrol("update", f"nodename={NODE}", "state=drain", "reason=sluice[17.0000aaaa]: GPUUnhealthy")
    with_driver = Driver(PROGRAM, FOLDER + "/lost", None, **{**ROOM, "node": NODE}).begin()
    try:
        wait_for(lambda: with_driver.metric('sluice_isolation_out{plug="slurm"}') == 1, "that it is out")
        with_driver.say("later 6")
        with_driver.wait("done", "back")
        assert "DRAIN" not in node()[0]
    finally:
        with_driver.end()


def programs_that_hang_are_named_and_stop_nothing():
    folder = FOLDER + "/hang"
    os.makedirs(folder)
    for name in ("sinfo", "scontrol"):
        with open(f"{folder}/{name}", "w", encoding="ascii") as script:
            script.write("#!/bin/sh\nexec sleep 1000\n")
        os.chmod(f"{folder}/{name}", 0o755)
    with_driver = driver(slurm_bin=folder, timeout_ms=4000).begin()
    try:
        with_driver.say("bad 7")
        time.sleep(0.3)
        started = time.monotonic()
        with_driver.metric('sluice_isolation_up{plug="slurm"}')
        assert time.monotonic() - started < 2
        late = with_driver.wait("timed_out")
        assert late["outcome"] == f"{folder}/sinfo -haN did not end in time, and was killed", late
        assert with_driver.metric('sluice_isolation_up{plug="slurm"}') == 0
    finally:
        with_driver.end()


def a_node_that_slurm_has_not_is_named():
    with_driver = driver("nobody").begin()
    try:
        with_driver.say("bad 7")
        assert "sinfo shows no node nobody" in with_driver.wait("failed")["outcome"]
    finally:
        with_driver.end()


def programs_that_are_not_there_are_named():
    with_driver = driver(slurm_bin="/no/such").begin()
    try:
        with_driver.say("bad 7")
        assert "there is no /no/such/sinfo: Slurm's clients are missing (slurm-client)" in with_driver.wait("failed")["outcome"]
    finally:
        with_driver.end()


QUICK = [drained_and_undrained, drained_by_the_administrator_it_is_left_alone, in_shadow_mode_nothing_happens,
         a_node_that_slurm_has_not_is_named]
ALL = QUICK + [with_a_reason_that_the_administrator_changed_it_stays_drained,
               resumed_by_the_administrator_it_is_not_drained_again, killed_while_it_drains_it_drains_once, too_many_are_out,
               of_all_nodes_at_once_no_more_are_out_than_may_be, a_drain_that_was_forgotten_is_undone,
               programs_that_hang_are_named_and_stop_nothing, programs_that_are_not_there_are_named]
run(QUICK if sys.argv[4:] == ["quick"] else ALL)
