/* SPDX-License-Identifier: Apache-2.0 */
/* A network namespace in which what one user id sends can be dropped: the half-open peer. */
#include "tests/fault/fault.h"

#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static int loopback_up(void)
{
    struct ifreq request = {.ifr_name = "lo"};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int err = fd < 0 ? -1 : ioctl(fd, SIOCGIFFLAGS, &request);

    request.ifr_flags |= IFF_UP;
    if (err == 0)
        err = ioctl(fd, SIOCSIFFLAGS, &request);
    close(fd);
    return err;
}

const char *cut_prepare(void)
{
    if (geteuid() != 0)
        return "dropping packets needs root";
    if (system("command -v nft >/dev/null") != 0)
        return "nft is not here (package nftables)";
    if (unshare(CLONE_NEWNET) != 0 || loopback_up() != 0)
        return "no network namespace can be made here";
    if (system("nft add table ip sluice && nft 'add chain ip sluice out "
               "{ type filter hook output priority 0; }'") != 0)
        return "nft cannot filter here";
    return NULL;
}

int cut_now(void)
{
    char command[96];

    snprintf(command, sizeof(command), "nft add rule ip sluice out meta skuid %d drop", CUT_UID);
    return system(command) == 0 ? 0 : -EIO;
}
