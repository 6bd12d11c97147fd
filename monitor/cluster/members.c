/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/cluster/members.h"

#include "core/err.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOK_NS UINT64_C(60000000000) /* a look takes no longer, or is killed */
#define RETRY_NS UINT64_C(10000000000)

struct answer {
    int err;
    char why[256];
};

/* What the child is given. */
struct order {
    struct sl_mon_config config;
    char path[64]; /* the file that it writes */
    uint64_t deadline_ns;
};

struct sl_members {
    struct order order;
    struct sl_members_list list;
    struct sl_mon_child child;
    bool is_looking, has_looked;
    uint64_t next_ns;
    char why[256];
};

/* ---- which sources ---- */

/* The next source between blanks; false: there is none. */
static bool next_source(const char **at, char *out, size_t cap)
{
    size_t len;

    *at += strspn(*at, " \t");
    len = strcspn(*at, " \t");
    if (len == 0)
        return false;
    snprintf(out, cap, "%.*s", (int)len, *at);
    *at += len;
    return true;
}

static int check_source(const char *source)
{
    static const char *const kinds[] = {"file:", "dns:", "srv:", "slurm:", "kubernetes:"};
    size_t len = 0;

    for (unsigned i = 0; i < SL_ARRAY_LEN(kinds) && len == 0; i++)
        if (strncmp(source, kinds[i], strlen(kinds[i])) == 0)
            len = strlen(kinds[i]);
    if (len == 0)
        return sl_fail(-EINVAL,
                       "[cluster] members: '%s' begins with none of file:, dns:, srv:, slurm:, "
                       "kubernetes:",
                       source);
    if (source[len] == '\0' && strcmp(source, "slurm:") != 0)
        return sl_fail(-EINVAL, "[cluster] members: after '%s' there is a name to be", source);
    if (source[len] == '-')
        return sl_fail(-EINVAL, "[cluster] members: '%s' is no name", source + len);
    if (strncmp(source, "kubernetes:", len) == 0 && strchr(source, '/') == NULL)
        return sl_fail(-EINVAL, "[cluster] members: '%s' is to be kubernetes:NAMESPACE/SERVICE",
                       source);
    return 0;
}

int sl_members_check(const struct sl_mon_config *config)
{
    const char *at = config->cluster_members;
    char source[SL_MON_PATH];
    int err = 0;

    while (err == 0 && next_source(&at, source, sizeof(source)))
        err = check_source(source);
    return err;
}

/* ---- in the child ---- */

static int write_list(const char *path, struct sl_members_list *list)
{
    FILE *file = fopen(path, "we");

    sl_members_sort(list);
    if (file == NULL)
        return sl_fail(-errno, "members: %s cannot be written", path);
    for (unsigned i = 0; i < list->count; i++)
        fprintf(file, "[%s]:%u\n", list->list[i].host, list->list[i].port);
    return fclose(file) != 0 ? sl_fail(-EIO, "members: %s cannot be written", path) : 0;
}

static void look(const void *arg, void *answer)
{
    const struct order *order = arg;
    struct answer *out = answer;
    struct sl_members_list list = {.count = 0};
    const char *at = order->config.cluster_members;
    char source[SL_MON_PATH];

    while (out->err == 0 && next_source(&at, source, sizeof(source)))
        out->err = sl_members_look(&order->config, source, order->deadline_ns, &list);
    if (out->err == 0)
        out->err = write_list(order->path, &list);
    if (out->err != 0)
        snprintf(out->why, sizeof(out->why), "%s", sluice_last_error());
}

/* ---- in the instance ---- */

int sl_members_new(const struct sl_mon_config *config, struct sl_members **out)
{
    const char *folder = getenv("TMPDIR");
    struct sl_members *members;
    int fd, err = sl_members_check(config);

    if (err != 0)
        return err;
    members = calloc(1, sizeof(*members));
    if (members == NULL)
        return sl_fail(-ENOMEM, "no memory for members");
    members->child = (struct sl_mon_child)SL_MON_CHILD_INIT;
    members->order.config = *config;
    snprintf(members->order.path, sizeof(members->order.path), "%s/sluiced-members.XXXXXX",
             folder != NULL && strlen(folder) < 32 ? folder : "/tmp");
    fd = mkstemp(members->order.path);
    if (fd < 0) {
        err =
            sl_fail(-errno, "%s cannot be made: %s", members->order.path, sluice_strerror(-errno));
        free(members);
        return err;
    }
    close(fd);
    *out = members;
    return 0;
}

void sl_members_free(struct sl_members *members)
{
    if (members == NULL)
        return;
    sl_mon_child_kill(&members->child);
    (void)unlink(members->order.path);
    sl_members_list_free(&members->list);
    free(members);
}

static void failed(struct sl_members *members, const char *why, uint64_t now_ns)
{
    snprintf(members->why, sizeof(members->why), "%s", why);
    members->next_ns = now_ns + RETRY_NS;
}

static int read_list(struct sl_members *members)
{
    struct sl_members_list list = {.count = 0};
    FILE *file = fopen(members->order.path, "re");
    char line[SL_MEMBER_HOST + 16];
    int err = 0;

    if (file == NULL)
        return sl_fail(-errno, "members: %s is gone", members->order.path);
    while (err >= 0 && fgets(line, sizeof(line), file) != NULL)
        err = sl_members_add(&list, line, strcspn(line, "\n"), 1);
    fclose(file);
    if (err < 0) {
        sl_members_list_free(&list);
        return err;
    }
    sl_members_list_free(&members->list);
    members->list = list;
    return 0;
}

static bool finish(struct sl_members *members, uint64_t now_ns)
{
    struct answer answer;
    int got = sl_mon_child_poll(&members->child, now_ns, &answer, sizeof(answer));

    if (got == 0)
        return false;
    members->is_looking = false;
    if (got < 0) {
        failed(members,
               got == -ETIMEDOUT ? "members: whoever knows them did not answer in time"
                                 : "members: the process that asks ended without an answer",
               now_ns);
        return false;
    }
    if (answer.err == 0)
        answer.err = read_list(members);
    else
        sl_fail(answer.err, "%s", answer.why);
    if (answer.err != 0) {
        failed(members, sluice_last_error(), now_ns);
        return false;
    }
    members->why[0] = '\0';
    members->next_ns =
        now_ns + (uint64_t)members->order.config.cluster_members_s * UINT64_C(1000000000);
    return true;
}

bool sl_members_tick(struct sl_members *members, uint64_t now_ns)
{
    if (members->order.config.cluster_members[0] == '\0')
        return false;
    if (members->is_looking)
        return finish(members, now_ns);
    if (members->has_looked && now_ns < members->next_ns)
        return false;
    members->has_looked = true;
    if (!sl_mon_child_is_gone(&members->child))
        return false;
    members->order.deadline_ns = now_ns + LOOK_NS;
    if (sl_mon_child_start(&members->child, look, &members->order, sizeof(struct answer),
                           members->order.deadline_ns) == 0)
        members->is_looking = true;
    else
        failed(members, sluice_last_error(), now_ns);
    return false;
}

const struct sl_members_list *sl_members_list(const struct sl_members *members)
{
    return &members->list;
}

const char *sl_members_why(const struct sl_members *members)
{
    return members->why;
}
