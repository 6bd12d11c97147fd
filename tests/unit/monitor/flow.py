#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# A flow over TCP, for tests of what the agent says of one.
#   flow.py receive PORT [BYTES_PER_S]    takes what comes, or so much of it
#   flow.py send ADDRESS PORT [BYTES PERIOD_S]    sends all the time, or so much each period
import socket
import sys
import time


def receive(port, rate=0):
    rate = int(rate)
    listener = socket.create_server(("", int(port)))
    connection, _ = listener.accept()
    buffer, began, total = bytearray(1 << 18), time.monotonic(), 0
    while count := connection.recv_into(buffer, 0 if not rate else 65536):
        total += count
        if rate and total / rate > time.monotonic() - began:
            time.sleep(total / rate - (time.monotonic() - began))


def connect(address, port):
    for _ in range(100):
        try:
            return socket.create_connection((address, int(port)))
        except ConnectionRefusedError:
            time.sleep(0.05)
    sys.exit("nobody listens")


def send(address, port, size=1 << 18, period=0):
    connection, data, at = connect(address, port), bytes(int(size)), time.monotonic()
    while True:
        connection.sendall(data)
        at += float(period)
        if period and at > time.monotonic():
            time.sleep(at - time.monotonic())


try:
    {"receive": receive, "send": send}[sys.argv[1]](*sys.argv[2:])
except (BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
    pass
