/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a file of the profiler (events.h) and prints it, a JSON object per line.
 *
 * The file may be anybody's, and may change at any time: the state page's reader checks its sizes,
 * and nobody maps it. The records are copied by read() between two readings of the turns: a record
 * with the same turn in both was not written to meanwhile.
 */
#include "tools/nccl/events_view.h"

#include "core/err.h"
#include "tools/nccl/abi_profiler.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- reading ---- */

static int refuse(void)
{
    return sl_fail(-EPROTO, "it holds no events of NCCL");
}

/* All of len bytes from off on; the file may have been cut since its size was asked. */
static int read_all(int fd, void *to, size_t len, off_t off)
{
    for (size_t got = 0; got < len;) {
        ssize_t n = pread(fd, (char *)to + got, len - got, off + (off_t)got);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return sl_fail(-errno, "%s", sluice_strerror(-errno));
        if (n == 0)
            return refuse();
        got += (size_t)n;
    }
    return 0;
}

static bool find(const struct sl_state_reader *reader, enum sl_state_kind kind, size_t bytes,
                 struct sl_state_section *out)
{
    return sl_state_find(reader, kind, out) && out->record_bytes == bytes;
}

/* All but the records. The two tables lie one behind the other. */
static int read_head(int fd, struct sl_nccl_events_copy *out, off_t *records_at)
{
    struct sl_state_section slots, ring;
    struct sl_state_reader reader;

    if (sl_state_read_fd(fd, &reader) != 0 ||
        !find(&reader, SL_STATE_NCCL_OPEN, sizeof(*out->slots), &slots) ||
        !find(&reader, SL_STATE_NCCL_OVER, sizeof(*out->ring), &ring) || ring.count == 0 ||
        ring.offset != slots.offset + slots.count * sizeof(*out->slots))
        return refuse();
    *out = (struct sl_nccl_events_copy){.slot_count = slots.count, .ring_count = ring.count};
    *records_at = (off_t)slots.offset;
    if (sl_state_get(&reader, SL_STATE_PROCESS, 0, &out->process, sizeof(out->process)) !=
            SL_STATE_WHOLE ||
        sl_state_get(&reader, SL_STATE_NCCL, 0, &out->head, sizeof(out->head)) != SL_STATE_WHOLE)
        return refuse();
    out->comm_count = sl_state_count(&reader, SL_STATE_NCCL_COMM);
    if (out->comm_count > SL_NCCL_EVENTS_COMMS)
        out->comm_count = SL_NCCL_EVENTS_COMMS;
    for (uint32_t i = 0; i < out->comm_count; i++)
        out->comm_is[i] = sl_state_get(&reader, SL_STATE_NCCL_COMM, i, &out->comm[i],
                                       sizeof(out->comm[i])) == SL_STATE_WHOLE;
    return 0;
}

/* The records, with the turn that each had before they were read, and again records with the
 * turns afterwards. The kernel reads on this processor, so the fences keep its loads apart, too. */
static int read_records(int fd, off_t off, struct sl_nccl_event_record *records,
                        struct sl_nccl_event_record *again, size_t count)
{
    size_t bytes = count * sizeof(*records);
    int err = read_all(fd, again, bytes, off);

    atomic_thread_fence(memory_order_acquire);
    if (err == 0)
        err = read_all(fd, records, bytes, off);
    atomic_thread_fence(memory_order_acquire);
    for (size_t i = 0; err == 0 && i < count; i++)
        records[i].turn = again[i].turn;
    return err == 0 ? read_all(fd, again, bytes, off) : err;
}

int sl_nccl_events_read(int fd, struct sl_nccl_events_copy *out)
{
    struct sl_nccl_event_record *records = NULL, *again = NULL;
    size_t count;
    off_t at;
    int err = read_head(fd, out, &at);

    if (err != 0)
        return err;
    count = (size_t)out->slot_count + out->ring_count;
    records = malloc(count * sizeof(*records));
    again = malloc(count * sizeof(*again));
    err = records != NULL && again != NULL
              ? read_records(fd, at, records, again, count)
              : sl_fail(-ENOMEM, "there is no memory for a copy of it");
    if (err != 0) {
        free(again);
        free(records);
        return err;
    }
    out->slots = records;
    out->slots_again = again;
    out->ring = records + out->slot_count;
    out->ring_again = again + out->slot_count;
    return 0;
}

void sl_nccl_events_free(struct sl_nccl_events_copy *copy)
{
    free(copy->slots);
    free(copy->slots_again);
    *copy = (struct sl_nccl_events_copy){.slots = NULL};
}

/* ---- printing ---- */

/* Only characters that JSON needs not escape. */
static void print_text(FILE *out, const char *name, const char *text, size_t cap)
{
    fprintf(out, ",\"%s\":\"", name);
    for (size_t i = 0; i < cap && text[i] != '\0'; i++)
        fputc(text[i] >= ' ' && text[i] < 127 && text[i] != '"' && text[i] != '\\' ? text[i] : '?',
              out);
    fputc('"', out);
}

/* The reason for the wait of a step in that state; docs/nccl.md has the table. */
static const char *waits_for(uint8_t state)
{
    switch (state) {
    case SL_NCCL_STATE_SEND_GPU_WAIT: return "this rank's GPU, to fill the buffer";
    case SL_NCCL_STATE_SEND_PEER_WAIT: return "the peer, to ask for it";
    case SL_NCCL_STATE_SEND_WAIT: return "the network, to take it";
    case SL_NCCL_STATE_RECV_WAIT: return "the peer or the network, to bring it";
    case SL_NCCL_STATE_RECV_FLUSH_WAIT: return "the GPU's memory, to show it";
    case SL_NCCL_STATE_RECV_GPU_WAIT: return "this rank's GPU, to empty the buffer";
    default: return NULL;
    }
}

static const char *type_name(uint8_t type)
{
    switch (type) {
    case SL_NCCL_EVENT_COLL: return "coll";
    case SL_NCCL_EVENT_P2P: return "p2p";
    case SL_NCCL_EVENT_PROXY_OP: return "proxy_op";
    case SL_NCCL_EVENT_PROXY_STEP: return "proxy_step";
    case SL_NCCL_EVENT_KERNEL_CH: return "kernel";
    case SL_NCCL_EVENT_KERNEL_PHASE: return "kernel_phase";
    default: return "unknown";
    }
}

static void print_op(FILE *out, const struct sl_nccl_event_record *r)
{
    print_text(out, "func", r->op.func, sizeof(r->op.func));
    fprintf(out, ",\"seq\":%llu,\"count\":%llu", (unsigned long long)r->op.seq,
            (unsigned long long)r->op.count);
    print_text(out, "datatype", r->op.datatype, sizeof(r->op.datatype));
    fprintf(out, ",\"%s\":%d,\"channels\":%u", r->type == SL_NCCL_EVENT_COLL ? "root" : "peer",
            r->op.root, r->op.channels);
    if (r->op.tag != 0)
        fprintf(out, ",\"tag\":%llu", (unsigned long long)r->op.tag);
    if (r->type != SL_NCCL_EVENT_COLL)
        return;
    print_text(out, "algo", r->op.algo, sizeof(r->op.algo));
    print_text(out, "proto", r->op.proto, sizeof(r->op.proto));
    fprintf(out, ",\"symmetric\":%s", r->op.symmetric != 0 ? "true" : "false");
}

static void print_step(FILE *out, uint64_t now_ns, const struct sl_nccl_event_record *r)
{
    const char *wait = r->stop_ns == 0 ? waits_for(r->state) : NULL;

    fprintf(out,
            ",\"step\":%d,\"send\":%s,\"bytes\":%llu,\"gpu_wait_ns\":%llu,\"peer_wait_ns\":%llu,"
            "\"net_wait_ns\":%llu",
            r->step.step, r->step.is_send ? "true" : "false", (unsigned long long)r->step.bytes,
            (unsigned long long)r->step.wait_ns[0], (unsigned long long)r->step.wait_ns[1],
            (unsigned long long)r->step.wait_ns[2]);
    if (wait != NULL && now_ns >= r->state_ns)
        fprintf(out, ",\"waits_for\":\"%s\",\"since_ns\":%llu", wait,
                (unsigned long long)(now_ns - r->state_ns));
}

static void print_kernel(FILE *out, const struct sl_nccl_event_record *r)
{
    static const char *const phases[] = {"meet", "work", "meet again"};

    fprintf(out, ",\"channel\":%llu,\"gpu_start_ns\":%llu,\"gpu_stop_ns\":%llu",
            (unsigned long long)r->kernel.channel, (unsigned long long)r->kernel.gpu_start_ns,
            (unsigned long long)r->kernel.gpu_stop_ns);
    if (r->type == SL_NCCL_EVENT_KERNEL_PHASE)
        fprintf(out, ",\"phase\":\"%s\"",
                r->kernel.phase < 3 ? phases[r->kernel.phase] : "unknown");
}

static void print_record(FILE *out, uint64_t now_ns, const struct sl_nccl_event_record *r)
{
    fprintf(out,
            "{\"event\":\"%s\",\"open\":%s,\"id\":%llu,\"parent\":%llu,\"comm\":%u,\"rank\":%d,"
            "\"start_ns\":%llu,\"stop_ns\":%llu",
            type_name(r->type), r->stop_ns == 0 ? "true" : "false", (unsigned long long)r->id,
            (unsigned long long)r->parent, r->comm, r->rank, (unsigned long long)r->start_ns,
            (unsigned long long)r->stop_ns);
    if (r->type == SL_NCCL_EVENT_COLL || r->type == SL_NCCL_EVENT_P2P)
        print_op(out, r);
    else if (r->type == SL_NCCL_EVENT_PROXY_OP)
        fprintf(
            out,
            ",\"pid\":%d,\"channel\":%u,\"peer\":%d,\"steps\":%d,\"chunk_bytes\":%d,\"send\":%s",
            r->proxy.pid, r->proxy.channel, r->proxy.peer, r->proxy.steps, r->proxy.chunk_bytes,
            r->proxy.is_send ? "true" : "false");
    else if (r->type == SL_NCCL_EVENT_PROXY_STEP)
        print_step(out, now_ns, r);
    else if (r->type == SL_NCCL_EVENT_KERNEL_CH || r->type == SL_NCCL_EVENT_KERNEL_PHASE)
        print_kernel(out, r);
    fprintf(out, "}\n");
}

static bool has_turn(const struct sl_nccl_event_record *record,
                     const struct sl_nccl_event_record *again, uint64_t turn)
{
    return atomic_load_explicit(&record->turn, memory_order_relaxed) == turn &&
           atomic_load_explicit(&again->turn, memory_order_relaxed) == turn;
}

void sl_nccl_events_print_ring(const struct sl_nccl_events_copy *copy, FILE *out)
{
    uint64_t written = atomic_load(&copy->head.written), ring = copy->ring_count;

    for (uint64_t i = written > ring ? written - ring : 0; i < written; i++)
        if (has_turn(&copy->ring[i % ring], &copy->ring_again[i % ring], i + 1))
            print_record(out, 0, &copy->ring[i % ring]);
}

void sl_nccl_events_print_open(const struct sl_nccl_events_copy *copy, uint64_t now_ns, FILE *out)
{
    for (uint32_t i = 0; i < copy->slot_count; i++) {
        uint64_t turn = atomic_load_explicit(&copy->slots[i].turn, memory_order_relaxed);

        if (sl_nccl_slot_is_whole(turn) && has_turn(&copy->slots[i], &copy->slots_again[i], turn) &&
            copy->slots[i].type != 0)
            print_record(out, now_ns, &copy->slots[i]);
    }
}

void sl_nccl_events_print_head(const struct sl_nccl_events_copy *copy, FILE *out)
{
    const struct sl_nccl_event_head *head = &copy->head;

    fprintf(out, "{\"process\":%d,\"finished\":%llu,\"dropped\":%llu,\"late\":%llu}\n",
            copy->process.pid, (unsigned long long)atomic_load(&head->written),
            (unsigned long long)atomic_load(&head->dropped),
            (unsigned long long)atomic_load(&head->late));
    for (uint32_t i = 0; i < copy->comm_count; i++) {
        const struct sl_nccl_event_comm *comm = &copy->comm[i];

        if (!copy->comm_is[i])
            continue;
        fprintf(
            out,
            "{\"comm\":%u,\"id\":\"%016llx\",\"rank\":%d,\"ranks\":%d,\"nodes\":%d,\"lives\":%s", i,
            (unsigned long long)comm->id, comm->rank, comm->ranks, comm->nodes,
            atomic_load(&comm->lives) != 0 ? "true" : "false");
        print_text(out, "name", comm->name, sizeof(comm->name));
        fprintf(out, "}\n");
    }
}
