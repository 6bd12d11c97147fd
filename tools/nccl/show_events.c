/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sluice-nccl-events: prints what the profiler wrote of a process (events.h), a JSON object per line: the
 * communicators, what is over, and what is going on, with what it waits for.
 */
#include "tools/nccl/abi_profiler.h"
#include "tools/nccl/events.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char usage[] =
    "usage: sluice-nccl-events [--open] FILE | PID\n"
    "Prints the events that the NCCL plugin writes with SLUICE_NCCL_PROFILE, a JSON object per line.\n"
    "  --open   only what is going on\n"
    "FILE is /dev/shm/sluice-nccl-PID-RANK; a process that has ended badly leaves it behind.\n";

struct view {
    const struct sl_nccl_events *file;
    const struct sl_nccl_event_record *slots, *ring;
    uint64_t now_ns;
};

/* Only what a JSON text may hold as it is. */
static void print_text(const char *name, const char *text, size_t cap)
{
    printf(",\"%s\":\"", name);
    for (size_t i = 0; i < cap && text[i] != '\0'; i++)
        putchar(text[i] >= ' ' && text[i] < 127 && text[i] != '"' && text[i] != '\\' ? text[i] : '?');
    putchar('"');
}

/* What a step in that state waits for; the table stands in docs/nccl.md. */
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
    default: return "unknown";
    }
}

static void print_op(const struct sl_nccl_event_record *r)
{
    print_text("func", r->op.func, sizeof(r->op.func));
    printf(",\"seq\":%llu,\"count\":%llu", (unsigned long long)r->op.seq, (unsigned long long)r->op.count);
    print_text("datatype", r->op.datatype, sizeof(r->op.datatype));
    printf(",\"%s\":%d,\"channels\":%u", r->type == SL_NCCL_EVENT_COLL ? "root" : "peer", r->op.root,
           r->op.channels);
    if (r->type != SL_NCCL_EVENT_COLL)
        return;
    print_text("algo", r->op.algo, sizeof(r->op.algo));
    print_text("proto", r->op.proto, sizeof(r->op.proto));
}

static void print_step(const struct view *view, const struct sl_nccl_event_record *r)
{
    const char *wait = r->stop_ns == 0 ? waits_for(r->state) : NULL;

    printf(",\"step\":%d,\"send\":%s,\"bytes\":%llu,\"gpu_wait_ns\":%llu,\"peer_wait_ns\":%llu,"
           "\"net_wait_ns\":%llu",
           r->step.step, r->step.is_send ? "true" : "false", (unsigned long long)r->step.bytes,
           (unsigned long long)r->step.wait_ns[0], (unsigned long long)r->step.wait_ns[1],
           (unsigned long long)r->step.wait_ns[2]);
    if (wait != NULL && view->now_ns >= r->state_ns)
        printf(",\"waits_for\":\"%s\",\"since_ns\":%llu", wait,
               (unsigned long long)(view->now_ns - r->state_ns));
}

static void print_record(const struct view *view, const struct sl_nccl_event_record *r)
{
    printf("{\"event\":\"%s\",\"open\":%s,\"id\":%llu,\"parent\":%llu,\"comm\":%u,\"rank\":%d,\"start_ns\":%llu,"
           "\"stop_ns\":%llu",
           type_name(r->type), r->stop_ns == 0 ? "true" : "false", (unsigned long long)r->id,
           (unsigned long long)r->parent, r->comm, r->rank, (unsigned long long)r->start_ns,
           (unsigned long long)r->stop_ns);
    if (r->type == SL_NCCL_EVENT_COLL || r->type == SL_NCCL_EVENT_P2P)
        print_op(r);
    else if (r->type == SL_NCCL_EVENT_PROXY_OP)
        printf(",\"pid\":%d,\"channel\":%u,\"peer\":%d,\"steps\":%d,\"chunk_bytes\":%d,\"send\":%s", r->proxy.pid,
               r->proxy.channel, r->proxy.peer, r->proxy.steps, r->proxy.chunk_bytes,
               r->proxy.is_send ? "true" : "false");
    else if (r->type == SL_NCCL_EVENT_PROXY_STEP)
        print_step(view, r);
    else if (r->type == SL_NCCL_EVENT_KERNEL_CH)
        printf(",\"channel\":%llu,\"gpu_start_ns\":%llu,\"gpu_stop_ns\":%llu", (unsigned long long)r->kernel.channel,
               (unsigned long long)r->kernel.gpu_start_ns, (unsigned long long)r->kernel.gpu_stop_ns);
    printf("}\n");
}

/* A copy that was not written to meanwhile. */
static bool read_record(const struct sl_nccl_event_record *at, uint64_t turn, struct sl_nccl_event_record *out)
{
    if (atomic_load_explicit(&at->turn, memory_order_acquire) != turn)
        return false;
    memcpy(&out->id, &at->id, sizeof(*out) - offsetof(struct sl_nccl_event_record, id));
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&at->turn, memory_order_relaxed) == turn;
}

static void print_ring(const struct view *view)
{
    uint64_t written = atomic_load(&view->file->written);
    uint64_t first = written > view->file->ring ? written - view->file->ring : 0;

    for (uint64_t i = first; i < written; i++) {
        struct sl_nccl_event_record record;

        if (read_record(&view->ring[i % view->file->ring], i + 1, &record))
            print_record(view, &record);
    }
}

static void print_open(const struct view *view)
{
    for (uint32_t i = 0; i < view->file->slots; i++) {
        struct sl_nccl_event_record record;
        uint64_t turn = atomic_load_explicit(&view->slots[i].turn, memory_order_relaxed);

        if (turn % 2 == 1 && read_record(&view->slots[i], turn, &record) && record.type != 0)
            print_record(view, &record);
    }
}

static void print_head(const struct view *view)
{
    const struct sl_nccl_events *f = view->file;

    printf("{\"process\":%d,\"finished\":%llu,\"dropped\":%llu,\"late\":%llu}\n", f->pid,
           (unsigned long long)atomic_load(&f->written), (unsigned long long)atomic_load(&f->dropped),
           (unsigned long long)atomic_load(&f->late));
    for (unsigned i = 0; i < SL_NCCL_EVENTS_COMMS; i++) {
        const struct sl_nccl_event_comm *comm = &f->comm[i];
        uint32_t used = atomic_load_explicit(&comm->used, memory_order_acquire);

        if (used == SL_NCCL_COMM_NEVER)
            continue;
        printf("{\"comm\":%u,\"id\":\"%016llx\",\"rank\":%d,\"ranks\":%d,\"nodes\":%d,\"lives\":%s", i,
               (unsigned long long)comm->id, comm->rank, comm->ranks, comm->nodes,
               used == SL_NCCL_COMM_LIVES ? "true" : "false");
        print_text("name", comm->name, sizeof(comm->name));
        printf("}\n");
    }
}

static int find_file(const char *given, char *out, size_t cap)
{
    char pattern[128];
    glob_t found = {0};
    int rc = -1;

    snprintf(out, cap, "%s", given);
    if (strspn(given, "0123456789") != strlen(given))
        return 0;
    snprintf(pattern, sizeof(pattern), SL_NCCL_EVENTS_PATH "-%s-*", given);
    if (glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc > 0) {
        snprintf(out, cap, "%s", found.gl_pathv[0]);
        rc = 0;
    } else {
        fprintf(stderr, "sluice-nccl-events: process %s writes no events; is SLUICE_NCCL_PROFILE set?\n", given);
    }
    globfree(&found);
    return rc;
}

static int open_view(const char *path, struct view *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st = {0};
    const struct sl_nccl_events *file;

    if (fd < 0 || fstat(fd, &st) != 0) {
        fprintf(stderr, "sluice-nccl-events: %s: %s\n", path, strerror(errno));
        return -1;
    }
    file = (size_t)st.st_size >= sizeof(*file)
               ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0)
               : MAP_FAILED;
    close(fd);
    if (file == MAP_FAILED || file->magic != SL_NCCL_EVENTS_MAGIC ||
        file->version != SL_NCCL_EVENTS_VERSION || file->header_bytes != sizeof(*file) ||
        file->record_bytes != sizeof(struct sl_nccl_event_record) || file->ring == 0 ||
        (size_t)st.st_size < sizeof(*file) + ((uint64_t)file->slots + file->ring) * file->record_bytes) {
        fprintf(stderr, "sluice-nccl-events: %s holds no events of version %d\n", path,
                SL_NCCL_EVENTS_VERSION);
        return -1;
    }
    out->file = file;
    out->slots = (const struct sl_nccl_event_record *)(file + 1);
    out->ring = out->slots + file->slots;
    return 0;
}

int main(int argc, char **argv)
{
    bool only_open = argc > 2 && strcmp(argv[1], "--open") == 0;
    struct timespec ts;
    char path[256];
    struct view view;

    if (argc != 2 + only_open || strcmp(argv[1], "--help") == 0) {
        fputs(usage, argc == 2 ? stdout : stderr);
        return argc == 2 ? 0 : 2;
    }
    if (find_file(argv[1 + only_open], path, sizeof(path)) != 0 || open_view(path, &view) != 0)
        return 1;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    view.now_ns = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
    print_head(&view);
    if (!only_open)
        print_ring(&view);
    print_open(&view);
    return 0;
}
