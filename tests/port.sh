# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# A port for a test's own rendezvous: source it, call free_port.

# free_port: a port below those that the kernel gives to outgoing connections, free now with the four
# after it (who meets by torchrun uses those). One of the kernel's own range, free now, may be some other
# test's connection by the time a slow launcher binds it.
free_port() {
    python3 - <<'END'
import random
import socket


def is_free(port):
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


for _ in range(1000):
    first = random.randrange(15000, 29990)
    if all(is_free(port) for port in range(first, first + 5)):
        print(first)
        break
END
}
