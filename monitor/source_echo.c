/* SPDX-License-Identifier: Apache-2.0 */
/* Source, of others' knowledge: answers probes of other agents (probe.h), and tells them where
 * those over RDMA are answered (probe_responder.h). It tells the engine nothing. */
#include "monitor/probe_responder.h"
#include "monitor/probe_secret.h"
#include "monitor/probe_udp.h"
#include "monitor/source.h"

#include "core/err.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PER_READ 256            /* then others are heard again */
#define RDMA_IDLE_NS SL_MON_MIN /* after which RDMA devices are let go */

struct source {
    struct sl_source_host host;
    int fd;
    uint8_t key[SL_DIGEST_BYTES];
    struct sl_probe_bucket bucket;
    struct sl_probe_sessions sessions;
    uint64_t answered, foreign, beyond; /* none of ours; more than the rate allows */
    char name[SL_PROBE_HOST];
    uint8_t bytes[SL_PROBE_MOST + 1];
    struct sl_probe_echo_order order; /* of the process that answers over RDMA */
    struct sl_probe_responder responder;
};

static int create(const struct sl_source_host *host, void **out)
{
    struct source *source = calloc(1, sizeof(*source));

    if (source == NULL)
        return sl_fail(-ENOMEM, "no memory for answers to probes");
    source->host = *host;
    source->fd = -1;
    sl_probe_responder_init(&source->responder);
    *out = source;
    return 0;
}

static void destroy(void *arg)
{
    struct source *source = arg;

    sl_probe_responder_fini(&source->responder);
    free(source);
}

static void prepare_rdma(struct source *source)
{
    const struct sl_mon_config *config = source->host.config;

    source->order = (struct sl_probe_echo_order){.rdma_root = config->rdma_root,
                                                 .library = config->probe_library,
                                                 .rate = (uint64_t)config->probe_rate,
                                                 .idle_ns = RDMA_IDLE_NS};
    memcpy(source->order.host, source->name, sizeof(source->order.host));
    memcpy(source->order.key, source->key, sizeof(source->order.key));
}

static int open_source(void *arg)
{
    static const int on = 1;
    struct source *source = arg;
    const struct sl_mon_config *config = source->host.config;
    struct sockaddr_storage address;
    socklen_t len;
    int err = sl_probe_secret(config->probe_secret, source->key);

    if (err != 0)
        return err;
    if (!sl_mon_address(config->probe_listen, &address, &len))
        return sl_fail(-EINVAL, "[probe] listen is to be an address and a port");
    source->fd = socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (source->fd < 0)
        return sl_fail(-errno, "no socket for probes: %s", sluice_strerror(-errno));
    (void)setsockopt(source->fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on));
    sl_probe_udp_room(source->fd);
    if (bind(source->fd, (const struct sockaddr *)&address, len) != 0) {
        err = sl_fail(-errno, "probes cannot be heard at %s: %s", config->probe_listen,
                      sluice_strerror(-errno));
        close(source->fd);
        source->fd = -1;
        return err;
    }
    if (gethostname(source->name, sizeof(source->name) - 1) != 0)
        source->name[0] = '\0';
    sl_probe_bucket_init(&source->bucket, (uint64_t)config->probe_rate,
                         sl_mon_time(source->host.mon)->mono_ns);
    prepare_rdma(source);
    return 0;
}

static void close_source(void *arg)
{
    struct source *source = arg;

    close(source->fd);
    source->fd = -1;
    sl_mon_reader_end(&source->responder.reader);
    source->responder.state = SL_PROBE_SOON;
}

static int fd_of(const void *arg)
{
    const struct source *source = arg;

    return source->fd;
}

/* As long as what was asked, with its padding as zeros. */
static void answer(struct source *source, struct sl_probe_packet *packet, struct msghdr *message,
                   uint64_t now_ns)
{
    packet->kind = SL_PROBE_ANSWER;
    packet->seen = sl_probe_seen(&source->sessions, packet->session, now_ns);
    packet->came_ns = sl_probe_came(message);
    memset(packet->host, 0, sizeof(packet->host));
    memcpy(packet->host, source->name, strlen(source->name));
    packet->answered_ns = sl_probe_wall();
    if (sl_probe_write(packet, source->key, source->bytes) != 0)
        return;
    if (sendto(source->fd, source->bytes, packet->len, 0, message->msg_name,
               message->msg_namelen) == (ssize_t)packet->len)
        source->answered++;
}

/* Begins the process that answers, if there is none. */
static void found(struct source *source, struct sl_probe_packet *packet, struct msghdr *message,
                  uint64_t now_ns)
{
    struct sl_probe_page page;

    if (source->host.config->probe_rdma == SL_MON_OFF || packet->len != SL_PROBE_LIST_BYTES)
        return;
    sl_probe_responder_page(&source->responder, &source->order, packet->number, now_ns, &page);
    packet->kind = SL_PROBE_FOUND;
    memcpy(packet->host, source->name, sizeof(packet->host));
    if (sl_probe_page_write(packet, &page, source->key, source->bytes) == 0)
        (void)!sendto(source->fd, source->bytes, packet->len, 0, message->msg_name,
                      message->msg_namelen);
}

static int read_source(void *arg)
{
    struct source *source = arg;
    uint64_t now_ns = sl_mon_time(source->host.mon)->mono_ns;
    int count = 0;

    for (; count < PER_READ; count++) {
        struct sockaddr_storage from;
        union {
            struct cmsghdr align;
            char bytes[CMSG_SPACE(sizeof(struct timespec))];
        } control;
        struct iovec part = {.iov_base = source->bytes, .iov_len = sizeof(source->bytes)};
        struct msghdr message = {.msg_name = &from,
                                 .msg_namelen = sizeof(from),
                                 .msg_iov = &part,
                                 .msg_iovlen = 1,
                                 .msg_control = control.bytes,
                                 .msg_controllen = sizeof(control.bytes)};
        ssize_t len = recvmsg(source->fd, &message, 0);
        struct sl_probe_packet packet;

        if (len < 0)
            break; /* nothing more, or an error of one of those that were answered */
        /* Before its proof is looked at: that costs most. */
        if (!sl_probe_bucket_take(&source->bucket, now_ns))
            source->beyond++;
        else if (sl_probe_read(source->bytes, (size_t)len, source->key, &packet) != 0 ||
                 (packet.kind != SL_PROBE_ASK && packet.kind != SL_PROBE_FIND))
            source->foreign++;
        else if (packet.kind == SL_PROBE_FIND)
            found(source, &packet, &message, now_ns);
        else
            answer(source, &packet, &message, now_ns);
    }
    return count;
}

static int tick(void *arg)
{
    struct source *source = arg;

    sl_probe_responder_tick(&source->responder, sl_mon_time(source->host.mon)->mono_ns);
    return 0;
}

static void metrics(void *arg, enum sl_mon_format format, FILE *out)
{
    const struct source *source = arg;
    const struct {
        const char *result;
        uint64_t count;
    } rows[] = {{"answered", source->answered + source->responder.answered},
                {"foreign", source->foreign + source->responder.foreign},
                {"beyond_rate", source->beyond + source->responder.beyond}};

    sl_mon_metrics_family(format, out, "sluice_probe_packets", "counter", "",
                          "Packets that came to be probes, over UDP and RDMA.");
    for (unsigned i = 0; i < SL_ARRAY_LEN(rows); i++) {
        sl_mon_metrics_open(out, "sluice_probe_packets_total", "result", rows[i].result);
        sl_mon_metrics_number(out, rows[i].count);
    }
}

const struct sl_source_class sl_source_echo = {.name = "echo",
                                               .how = "udp",
                                               .wanted = offsetof(struct sl_mon_config, probe_echo),
                                               .create = create,
                                               .destroy = destroy,
                                               .open = open_source,
                                               .close = close_source,
                                               .fd = fd_of,
                                               .read = read_source,
                                               .tick = tick,
                                               .metrics = metrics};
