/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which agents there are to ask: from files, DNS, Slurm and Kubernetes.
 *
 *     file:/etc/sluice/members          a host, or host:port, a line; # begins a comment
 *     dns:agents.example                all its addresses
 *     srv:_sluice._tcp.example          hosts and ports
 *     slurm:  slurm:PARTITION           nodes, as sinfo names them
 *     kubernetes:NAMESPACE/SERVICE      addresses and ports of a service's pods
 *
 * Asking may take long: it is done in a child process. What it finds comes as text, a host and a
 * port a line, and is kept until the next answer; an answer that fails changes nothing.
 */
#ifndef SL_MONITOR_CLUSTER_MEMBERS_H
#define SL_MONITOR_CLUSTER_MEMBERS_H

#include "monitor/child.h"
#include "monitor/config.h"

#define SL_MEMBERS_MAX 100000
#define SL_MEMBER_HOST 254 /* bytes of a host's name or address, with its end */
#define SL_MEMBERS_TEXT_MAX ((size_t)16 << 20)

struct sl_member {
    char host[SL_MEMBER_HOST]; /* a name, or an address without brackets */
    uint16_t port;
};

struct sl_members_list {
    struct sl_member *list; /* by host and port, each once */
    unsigned count, cap;
};

struct sl_members;

/* config: borrowed. -EINVAL: [cluster] members is none; -ENOMEM. */
int sl_members_new(const struct sl_mon_config *config, struct sl_members **out);
void sl_members_free(struct sl_members *members);
/* Once in a while: asks when it is time, takes what was found. True: the list may be another. */
bool sl_members_tick(struct sl_members *members, uint64_t now_ns);
const struct sl_members_list *sl_members_list(const struct sl_members *members);
/* "" or why the last look failed. */
const char *sl_members_why(const struct sl_members *members);

/* ---- pure ---- */

/* Are these members that can be looked for? -EINVAL with a sentence. */
int sl_members_check(const struct sl_mon_config *config);
/* Adds a line's member. 1; 0: the line is empty; -EINVAL: it is none. -E2BIG: there are too
 * many. */
int sl_members_add(struct sl_members_list *list, const char *line, size_t len, uint16_t port);
void sl_members_sort(struct sl_members_list *list);
void sl_members_list_free(struct sl_members_list *list);
/* What Kubernetes says of the endpoints of a service, a page: adds them, and gives the next page's
 * name ("": there is none). -EBADMSG. */
int sl_members_slices(struct sl_members_list *list, const char *text, size_t len, uint16_t port,
                      char *next, size_t cap);
/* An answer of DNS with SRV records. -EBADMSG. */
int sl_members_srv(struct sl_members_list *list, const unsigned char *answer, size_t len);

/* ---- in the child ---- */

/* One source, such as "dns:NAME". */
int sl_members_look(const struct sl_mon_config *config, const char *source, uint64_t deadline_ns,
                    struct sl_members_list *out);

#endif
