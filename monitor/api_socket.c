/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/api_socket.h"

#include "monitor/config.h"

#include "core/err.h"

#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 64

static int new_socket(int family)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    return fd >= 0 ? fd : sl_fail(-errno, "no socket for the API: %s", sluice_strerror(-errno));
}

/* Its folder, where only that is missing. */
static int make_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char folder[SL_MON_PATH];

    if (slash == NULL || slash == path)
        return 0;
    snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
    if (mkdir(folder, 0755) != 0 && errno != EEXIST)
        return sl_fail(-errno, "the folder of the API's socket, %s, cannot be made: %s", folder,
                       sluice_strerror(-errno));
    return 0;
}

static bool somebody_listens(const struct sockaddr_un *at)
{
    int fd = new_socket(AF_UNIX);
    bool is_there;

    if (fd < 0)
        return false;
    is_there = connect(fd, (const struct sockaddr *)at, sizeof(*at)) == 0 || errno == EAGAIN;
    close(fd);
    return is_there;
}

static int set_owner(const char *name, mode_t mode, const char *group)
{
    const struct group *entry;

    if (group[0] != '\0') {
        entry = getgrnam(group);
        if (entry == NULL)
            return sl_fail(-EINVAL, "there is no group '%s' for the API's socket", group);
        if (chown(name, (uid_t)-1, entry->gr_gid) != 0)
            return sl_fail(-errno, "the API's socket cannot be of group %s: %s", group,
                           sluice_strerror(-errno));
    }
    if (chmod(name, mode) != 0)
        return sl_fail(-errno, "the mode of %s: %s", name, sluice_strerror(-errno));
    return 0;
}

/* It gets its name when it is ready: nobody finds one of another mode, or that does not listen. */
int sl_api_listen_path(const char *path, mode_t mode, const char *group)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX}, first = {.sun_family = AF_UNIX};
    int fd, err, len = snprintf(first.sun_path, sizeof(first.sun_path), "%s.%d", path, getpid());

    if (len < 0 || (size_t)len >= sizeof(first.sun_path))
        return sl_fail(-ENAMETOOLONG, "the path of the API's socket is too long: %s", path);
    snprintf(to.sun_path, sizeof(to.sun_path), "%s", path);
    err = make_folder(path);
    if (err != 0)
        return err;
    if (somebody_listens(&to))
        return sl_fail(-EADDRINUSE, "another agent listens at %s", path);
    fd = new_socket(AF_UNIX);
    if (fd < 0)
        return fd;
    (void)unlink(first.sun_path);
    if (bind(fd, (const struct sockaddr *)&first, sizeof(first)) != 0)
        err = sl_fail(-errno, "the API's socket %s cannot be made: %s", path,
                      sluice_strerror(-errno));
    if (err == 0)
        err = set_owner(first.sun_path, mode, group);
    if (err == 0 && listen(fd, BACKLOG) != 0)
        err = sl_fail(-errno, "%s: listen: %s", path, sluice_strerror(-errno));
    if (err == 0 && rename(first.sun_path, path) != 0)
        err = sl_fail(-errno, "the API's socket %s cannot be made: %s", path,
                      sluice_strerror(-errno));
    if (err == 0)
        return fd;
    (void)unlink(first.sun_path);
    close(fd);
    return err;
}

int sl_api_listen_address(const char *address)
{
    struct sockaddr_storage to;
    socklen_t len;
    int fd, err = 0, yes = 1;

    if (!sl_mon_address(address, &to, &len))
        return sl_fail(-EINVAL, "'%s' is no address and port", address);
    fd = new_socket(to.ss_family);
    if (fd < 0)
        return fd;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(fd, (const struct sockaddr *)&to, len) != 0 || listen(fd, BACKLOG) != 0)
        err = sl_fail(-errno, "HTTP at %s: %s", address, sluice_strerror(-errno));
    if (err == 0)
        return fd;
    close(fd);
    return err;
}
