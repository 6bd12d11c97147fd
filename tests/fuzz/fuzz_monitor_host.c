/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel, sysfs and NVML's process tell the node agent of the host: the first byte says
 * who is given the rest. No byte beyond it is read, texts end, and numbers are within bounds. */
#include "core/err.h"
#include "monitor/async.h"
#include "monitor/gpu.h"
#include "monitor/nldev.h"
#include "monitor/pcie.h"
#include "monitor/queue.h"
#include "monitor/tcp.h"

#include <libmnl/libmnl.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct sl_mon *mon;

static void on_transition(void *arg, const struct sl_mon_transition *transition)
{
    (void)arg;
    (void)transition;
}

static void second(void)
{
    static struct sl_mon_time now = {.mono_ns = SL_MON_HOUR, .boot_ns = SL_MON_HOUR};

    now.mono_ns += SL_MON_S;
    now.boot_ns += SL_MON_S;
    sl_mon_set_time(mon, &now);
}

/* Calls take for each message of a batch, as long as the kernel would say that it is. */
static void messages(const uint8_t *data, size_t size, void *arg,
                     void (*take)(void *arg, const struct nlmsghdr *message, size_t len))
{
    for (size_t at = 0; at + 1 < size;) {
        size_t len = 16u + 4u * data[at];
        void *copy;

        if (len > size - at - 1)
            len = size - at - 1;
        copy = malloc(len); /* as aligned as the socket's buffer */

        sl_assert(copy != NULL);
        memcpy(copy, data + at + 1, len);
        at += 1 + len;
        if (len >= sizeof(struct nlmsghdr))
            take(arg, copy, len);
        free(copy);
    }
}

static void take_flow(void *arg, const struct nlmsghdr *message, size_t len)
{
    struct sl_mon_tcp *tcp = arg;
    struct sl_mon_tcp_flow flow;
    uint8_t address[16];
    unsigned ifindex;
    char text[48];

    (void)sl_mon_tcp_parse_own(message, len, address, &ifindex);
    if (!sl_mon_tcp_parse(message, len, &flow))
        return;
    sl_mon_tcp_address(flow.remote, text, sizeof(text));
    sl_assert(memchr(text, '\0', sizeof(text)) != NULL);
    sl_mon_tcp_flow(tcp, "eth0", &flow);
}

/* The same messages in both lists, so that connections are compared. */
static void fuzz_tcp(const uint8_t *data, size_t size)
{
    struct sl_mon_tcp_counters counters = {.has = 0};
    struct sl_mon_tcp *tcp;

    sl_assert(sl_mon_tcp_create(mon, &tcp) == 0);
    for (unsigned i = 0; i < 2; i++) {
        second();
        sl_mon_tcp_begin(tcp);
        messages(data + i * (size / 2), size / 2, tcp, take_flow);
        messages(data, size, tcp, take_flow);
        sl_mon_tcp_end(tcp, &counters);
    }
    sl_mon_tcp_destroy(tcp);
}

static void take_queue(void *arg, const struct nlmsghdr *message, size_t len)
{
    struct sl_mon_queues *queues = arg;
    struct sl_mon_qdisc qdisc;
    struct sl_mon_sent sent;

    if (sl_mon_sent_parse(message, len, &sent))
        sl_mon_queues_netif(queues, "eth0", &sent);
    if (sl_mon_qdisc_parse(message, len, &qdisc)) {
        sl_mon_queues_qdisc(queues, &qdisc);
        sl_mon_queues_tx(queues, qdisc.ifindex, qdisc.parent & 7,
                         &(struct sl_mon_tx){.has_inflight = true, .inflight = len});
    }
}

static void fuzz_queues(const uint8_t *data, size_t size)
{
    struct sl_mon_queues *queues;

    sl_assert(sl_mon_queues_create(mon, &queues) == 0);
    for (unsigned i = 0; i < 3; i++) {
        second();
        sl_mon_queues_begin(queues);
        messages(data, size, queues, take_queue);
        sl_mon_queues_end(queues);
    }
    sl_mon_queues_destroy(queues);
}

static void fuzz_text(const uint8_t *data, size_t size)
{
    struct sl_mon_tcp_counters counters = {.has = 0};
    uint64_t dropped, squeezed;
    enum sl_mon_kind kind;
    char *text = malloc(size + 1);

    sl_assert(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    sl_mon_tcp_read_counters(text, &counters);
    (void)sl_mon_softnet_parse(text, &dropped, &squeezed);
    sl_assert(sl_mon_pcie_speed(text) <= 1024000);
    sl_assert(sl_mon_pcie_lanes(text) <= 32);
    (void)sl_mon_pcie_kind(text, &kind);
    free(text);
}

static void fuzz_gpu(const uint8_t *data, size_t size)
{
    struct sl_mon_gpu gpu = {.subject = sl_mon_subject(mon, SL_MON_GPU, "0000:9b:00.0")};
    struct sl_mon_gpu_record record;

    sl_assert(gpu.subject != NULL);
    for (size_t at = 0; at < size; at += sizeof(record)) {
        second();
        if (!sl_mon_gpu_parse(data + at, size - at, &record))
            continue;
        sl_assert(memchr(record.name, '\0', sizeof(record.name)) != NULL &&
                  memchr(record.text, '\0', sizeof(record.text)) != NULL);
        if (record.type == SL_MON_GPU_DEVICE)
            sl_mon_gpu_judge(mon, &gpu, &record);
    }
}

static void fuzz_async(const uint8_t *data, size_t size)
{
    static const struct sl_mon_gids none;
    struct sl_mon_async_port port = {.num = 1};
    struct sl_mon_async_record record;

    for (size_t at = 0; at < size; at += sizeof(record)) {
        second();
        if (!sl_mon_async_parse(data + at, size - at, &record))
            continue;
        sl_assert(strchr(record.device, '/') == NULL);
        memcpy(port.device, record.device, sizeof(port.device));
        memcpy(port.pci, record.pci, sizeof(port.pci));
        sl_mon_async_judge(mon, &port, record.event, &none);
    }
}

static void take_qp(void *arg, const struct sl_mon_qp *qp)
{
    sl_mon_nldev_qp(mon, arg, qp);
}

static void take_nldev(void *arg, const struct nlmsghdr *message, size_t len)
{
    struct sl_mon_nldev *device = arg;
    uint32_t index;

    (void)sl_mon_nldev_parse(message, len, &index, device->name, device->counts);
    sl_assert(memchr(device->name, '\0', sizeof(device->name)) != NULL);
    sl_mon_nldev_qps(message, len, take_qp, device);
}

static void fuzz_nldev(const uint8_t *data, size_t size)
{
    struct sl_mon_nldev *device = calloc(1, sizeof(*device));

    sl_assert(device != NULL);
    for (unsigned i = 0; i < 2; i++) {
        second();
        sl_mon_nldev_begin(device);
        messages(data, size, device, take_nldev);
        sl_mon_nldev_end(mon, device);
    }
    free(device);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct sl_mon_options options = {.subjects_max = 64, .on_transition = on_transition};

    if (size == 0)
        return 0;
    sl_assert(sl_mon_create(&options, &mon) == 0);
    second();
    switch (data[0] % 6) {
    case 0: fuzz_tcp(data + 1, size - 1); break;
    case 1: fuzz_queues(data + 1, size - 1); break;
    case 2: fuzz_text(data + 1, size - 1); break;
    case 3: fuzz_gpu(data + 1, size - 1); break;
    case 4: fuzz_async(data + 1, size - 1); break;
    default: fuzz_nldev(data + 1, size - 1); break;
    }
    sl_mon_destroy(mon);
    return 0;
}
