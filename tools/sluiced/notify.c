/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/sluiced/notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void sld_notify(const char *line)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t len = path == NULL ? 0 : strlen(path);
    int fd;

    if (len < 2 || len >= sizeof(to.sun_path) || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(to.sun_path, path, len);
    if (path[0] == '@') /* of the abstract space */
        to.sun_path[0] = '\0';
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return;
    (void)sendto(fd, line, strlen(line), MSG_NOSIGNAL, (const struct sockaddr *)&to,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
    close(fd);
}
