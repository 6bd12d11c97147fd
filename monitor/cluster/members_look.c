/* SPDX-License-Identifier: Apache-2.0 */
/* Asks who the members are: in a child process, as each of these may wait. */
#include "monitor/cluster/members.h"

#include "monitor/kube.h"

#include "core/err.h"

#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <errno.h>
#include <netdb.h>
#include <resolv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGES_MAX 1000
#define NEXT_MAX 2048

static uint16_t port_of(const struct sl_mon_config *config)
{
    return (uint16_t)config->cluster_port;
}

static int add_lines(struct sl_members_list *out, const char *text, const char *what, uint16_t port)
{
    unsigned number = 1;
    char why[160];

    for (const char *line = text; *line != '\0'; number++) {
        size_t len = strcspn(line, "\n");
        int err = sl_members_add(out, line, len, port);

        if (err < 0) {
            snprintf(why, sizeof(why), "%s", sluice_last_error());
            return sl_fail(err, "%s:%u: %s", what, number, why);
        }
        line += len + (line[len] == '\n');
    }
    return 0;
}

static int look_file(const struct sl_mon_config *config, const char *path,
                     struct sl_members_list *out)
{
    FILE *file = fopen(path, "re");
    char *text = malloc(SL_MEMBERS_TEXT_MAX);
    size_t len;
    int err;

    if (file == NULL || text == NULL) {
        err = file == NULL ? -errno : -ENOMEM;
        free(text);
        if (file != NULL)
            fclose(file);
        return sl_fail(err, "members: %s cannot be read: %s", path, sluice_strerror(err));
    }
    len = fread(text, 1, SL_MEMBERS_TEXT_MAX - 1, file);
    text[len] = '\0';
    err = ferror(file) ? sl_fail(-EIO, "members: %s cannot be read", path)
                       : add_lines(out, text, path, port_of(config));
    fclose(file);
    free(text);
    return err;
}

static int look_dns(const struct sl_mon_config *config, const char *name,
                    struct sl_members_list *out)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int code = getaddrinfo(name, NULL, &hints, &found), err = 0;

    if (code != 0)
        return sl_fail(-EHOSTUNREACH, "members: DNS has no address of %s: %s", name,
                       gai_strerror(code));
    for (struct addrinfo *at = found; at != NULL && err >= 0; at = at->ai_next) {
        char host[SL_MEMBER_HOST], line[SL_MEMBER_HOST + 2];

        if (getnameinfo(at->ai_addr, at->ai_addrlen, host, sizeof(host), NULL, 0, NI_NUMERICHOST) !=
            0)
            continue;
        snprintf(line, sizeof(line), strchr(host, ':') != NULL ? "[%s]" : "%s", host);
        err = sl_members_add(out, line, strlen(line), port_of(config));
    }
    freeaddrinfo(found);
    return err < 0 ? err : 0;
}

static int look_srv(const char *name, struct sl_members_list *out)
{
    static unsigned char answer[65536];
    int len = res_query(name, ns_c_in, ns_t_srv, answer, sizeof(answer));

    if (len < 0)
        return sl_fail(-EHOSTUNREACH, "members: DNS has no SRV records of %s: %s", name,
                       hstrerror(h_errno));
    return sl_members_srv(out, answer, (size_t)len < sizeof(answer) ? (size_t)len : sizeof(answer));
}

static int look_slurm(const struct sl_mon_config *config, const char *partition,
                      uint64_t deadline_ns, struct sl_members_list *out)
{
    const char *bin = config->isolate_slurm_bin;
    char program[SL_MON_PATH + 16];
    /* A node's address, which may be another than its name. */
    const char *argv[] = {program, "-hN", "-o", "%o", "-a", NULL, NULL};
    struct sl_mon_child_output output = {.text = NULL};
    int err;

    snprintf(program, sizeof(program), "%s%ssinfo", bin, bin[0] != '\0' ? "/" : "");
    if (partition[0] != '\0') {
        argv[4] = "-p";
        argv[5] = partition;
    }
    err = sl_mon_child_run(argv, NULL, deadline_ns, &output);
    if (err != 0)
        return err;
    if (output.status != 0)
        err = sl_fail(-EIO, "members: sinfo ended with status %d: %s", output.status, output.error);
    else if (output.text == NULL || output.text[0] == '\0')
        err = sl_fail(-ENOENT, "members: Slurm has no nodes%s%s",
                      partition[0] != '\0' ? " in partition " : "", partition);
    else
        err = add_lines(out, output.text, "sinfo", port_of(config));
    free(output.text);
    return err;
}

/* What must not be part of an address otherwise: names of Kubernetes, and its page's names. */
static void escape(const char *text, char *out, size_t cap)
{
    size_t used = 0;

    for (; *text != '\0' && used + 4 < cap; text++) {
        if ((*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z') ||
            (*text >= '0' && *text <= '9') || *text == '-' || *text == '.') {
            out[used++] = *text;
            continue;
        }
        used += (size_t)snprintf(out + used, cap - used, "%%%02X", (unsigned char)*text);
    }
    out[used] = '\0';
}

static int look_kube(const struct sl_mon_config *config, const char *of, uint64_t deadline_ns,
                     struct sl_members_list *out)
{
    char space[128], service[128], next[NEXT_MAX] = "", page[3 * NEXT_MAX], path[4 * NEXT_MAX];
    char part[128];
    size_t len = strcspn(of, "/");

    snprintf(part, sizeof(part), "%.*s", (int)len, of);
    escape(part, space, sizeof(space));
    escape(of[len] == '/' ? of + len + 1 : "", service, sizeof(service));
    for (unsigned i = 0; i < PAGES_MAX; i++) {
        char *body;
        size_t bytes;
        int err;

        escape(next, page, sizeof(page));
        snprintf(path, sizeof(path),
                 "/apis/discovery.k8s.io/v1/namespaces/%s/endpointslices?limit=500&"
                 "labelSelector=kubernetes.io%%2Fservice-name%%3D%s%s%s",
                 space, service, page[0] != '\0' ? "&continue=" : "", page);
        err = sl_kube_get(config, deadline_ns, "listing endpoints", path, &body, &bytes);
        if (err == 0)
            err = sl_members_slices(out, body, bytes, port_of(config), next, sizeof(next));
        if (err != 0 || next[0] == '\0')
            return err;
    }
    return sl_fail(-EBADMSG, "Kubernetes: the list of endpoints does not end");
}

int sl_members_look(const struct sl_mon_config *config, const char *source, uint64_t deadline_ns,
                    struct sl_members_list *out)
{
    const char *of = strchr(source, ':') + 1;

    switch (source[0]) {
    case 'f': return look_file(config, of, out);
    case 'd': return look_dns(config, of, out);
    case 'k': return look_kube(config, of, deadline_ns, out);
    default:
        return strncmp(source, "srv:", 4) == 0 ? look_srv(of, out)
                                               : look_slurm(config, of, deadline_ns, out);
    }
}
