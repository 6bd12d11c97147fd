#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A stand-in for NCCL's RAS: answers its clients with a recorded state, under the time of day.

usage: ras_server.py FILE HOW PORT_FILE     HOW: answer, silent (accepts and says nothing), late (to all but the
first two, after 1.5 s: so NCCL 2.28 did where a rank was stopped)
"""
import json
import os
import socket
import sys
import time

path, how, port_file = sys.argv[1:]
listener = socket.create_server(("127.0.0.1", 0))
with open(port_file + ".new", "w") as out:
    print(listener.getsockname()[1], file=out)
os.rename(port_file + ".new", port_file)

waiting = []
while True:
    client, _ = listener.accept()
    if how == "silent" or (how == "late" and len(waiting) < 2):
        waiting.append(client)
        continue
    with client, client.makefile("rw", newline="\n") as talk:
        try:
            assert talk.readline().startswith("CLIENT PROTOCOL ")
            talk.write("SERVER PROTOCOL 2\n")
            talk.flush()
            for line in talk:
                if line == "STATUS\n":
                    time.sleep(1.5 if how == "late" else 0)
                    with open(path) as recorded:
                        state = json.load(recorded)
                    state["timestamp"] = time.strftime("%Y-%m-%d %H:%M:%S")
                    talk.write(json.dumps(state))
                    break
                talk.write("OK\n" if line == "SET FORMAT json\n" else "ERROR: " + line)
                talk.flush()
        except (AssertionError, OSError):
            pass
