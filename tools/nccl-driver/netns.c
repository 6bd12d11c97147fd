/* SPDX-License-Identifier: Apache-2.0 */
/* A namespace of the driver's own: what is cut there, nobody else notices. */
#include "tools/nccl-driver/netns.h"

#include <net/if.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

int netns_loopback(bool up)
{
    struct ifreq request = {.ifr_name = "lo"};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int err = fd < 0 ? -1 : ioctl(fd, SIOCGIFFLAGS, &request);

    request.ifr_flags = (short)(up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
    if (err == 0)
        err = ioctl(fd, SIOCSIFFLAGS, &request);
    if (fd >= 0)
        close(fd);
    return err;
}

const char *netns_enter(void)
{
    if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
        return "no network namespace can be made here";
    return netns_loopback(true) == 0 ? NULL
                                     : "the loopback of a new namespace cannot be brought up";
}
