/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A NIC's queue that can stand still: carries packets between two TAPs, each in the network
 * namespace of a process. Stopped (SIGSTOP), it takes nothing from either.
 *
 *   monitor_relay PID PID NAME
 *
 * Says "ready" when both are there; they go when it ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#define PACKET 70000 /* a virtual header, and what segmentation leaves to the NIC */
#define AT_ONCE 64   /* packets of one way before the other has its turn */

static int open_tap(const char *pid, const char *name)
{
    char path[64];
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
    int space, fd = -1;

    snprintf(path, sizeof(path), "/proc/%s/ns/net", pid);
    space = open(path, O_RDONLY | O_CLOEXEC);
    if (space < 0 || setns(space, CLONE_NEWNET) != 0)
        goto out;
    fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
    if (fd < 0 || ioctl(fd, TUNSETIFF, &request) != 0 ||
        ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) != 0) {
        perror("/dev/net/tun");
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
out:
    if (space >= 0)
        close(space);
    return fd;
}

/* What the other end has no room for is lost, as on a wire. */
static void carry(int from, int to)
{
    static char packet[PACKET];

    for (int i = 0; i < AT_ONCE; i++) {
        ssize_t len = read(from, packet, sizeof(packet));

        if (len <= 0)
            return;
        if (write(to, packet, (size_t)len) < 0 && errno != EAGAIN && errno != EIO &&
            errno != EINVAL)
            perror("a packet");
    }
}

int main(int argc, char **argv)
{
    struct pollfd ends[2] = {{.events = POLLIN}, {.events = POLLIN}};

    if (argc != 4)
        return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 0; i < 2; i++) {
        ends[i].fd = open_tap(argv[1 + i], argv[3]);
        if (ends[i].fd < 0)
            return 1;
    }
    puts("ready");
    fflush(stdout);
    for (;;) {
        if (poll(ends, 2, -1) < 0)
            continue;
        for (int i = 0; i < 2; i++)
            if (ends[i].revents != 0)
                carry(ends[i].fd, ends[1 - i].fd);
    }
}
