/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of Sluice's plugin for NCCL's profiler (docs/nccl.md), in place or copied. It has the
 * form of a state page and may have gigabytes: records are read in pieces, and what is kept of them
 * is less. Nothing is believed: a record counts if its turn is the same before and after it was
 * read. Calls and their parts are read first, steps of the parts after that.
 */
#include "core/clock.h"
#include "core/err.h"
#include "core/state_read.h"
#include "monitor/read/formats.h"
#include "monitor/read/nccl.h"
#include "monitor/read/page.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PLACE "/dev/shm/sluice-nccl-"
#define CHUNK 256u
#define COMMS 4096u
#define COPY_MAX ((size_t)2 << 30)
#define WRITING (UINT64_C(1) << 40)

enum { COLL = 1, P2P = 2, PROXY_OP = 3, PROXY_STEP = 4, KERNEL_CH = 6, KERNEL_PHASE = 15 };

/* As docs/nccl.md has them; the readers stand below the plugin and cannot have its header. */
struct record {
    uint64_t turn, id, parent;
    uint64_t start_ns, stop_ns, state_ns;
    uint8_t type, state;
    uint16_t comm;
    int32_t rank;
    union {
        struct {
            uint64_t seq, count;
            int32_t root;
            uint16_t channels, symmetric;
            char func[16], datatype[8], algo[8], proto[8];
            uint64_t tag;
        } op;
        struct {
            int32_t pid;
            uint32_t channel;
            int32_t peer, steps, chunk_bytes, is_send;
            uint64_t bytes;
        } proxy;
        struct {
            int32_t step, is_send;
            uint64_t bytes, wait_ns[3], polls;
        } step;
    };
};

struct head {
    uint64_t turn, start_ns;
    _Atomic uint64_t written, dropped, late;
};

struct comm {
    uint64_t turn, id, start_ns;
    int32_t rank, ranks, nodes;
    _Atomic uint32_t lives;
    char name[32];
    _Atomic uint64_t calls;
};

_Static_assert(sizeof(struct record) == 128 && sizeof(struct comm) == 80, "as docs/nccl.md says");

struct file {
    struct sl_state_reader reader;
    struct sl_nccl_tale tale;
    int (*found)(struct file *file, const struct record *record);
    struct record before[CHUNK], records[CHUNK], after[CHUNK];
    bool is_in_place, is_process_gone;
};

static int no_memory(void)
{
    return sl_fail(-ENOMEM, "no memory for events of NCCL");
}

/* ---- records ---- */

static bool copy(const struct sl_state_reader *reader, uint64_t at, void *to, size_t len)
{
    if (reader->fd < 0) {
        memcpy(to, (const char *)reader->memory + at, len);
        return true;
    }
    return pread(reader->fd, to, len, (off_t)at) == (ssize_t)len;
}

/* A slot's turn is odd while it is in use; the ring's is the record's number. */
static bool is_whole(const struct sl_state_section *section, uint64_t turn, uint32_t place)
{
    if (section->kind == SL_STATE_NCCL_OPEN)
        return turn % 2 == 1 && (turn & WRITING) == 0;
    return turn != 0 && (turn - 1) % section->count == place;
}

static int read_chunk(struct file *file, const struct sl_state_section *section, uint32_t first,
                      uint32_t count)
{
    uint64_t at = section->offset + (uint64_t)first * sizeof(struct record);
    size_t len = count * sizeof(struct record);
    bool is_whole_file = copy(&file->reader, at, file->before, len);
    int err = 0;

    atomic_thread_fence(memory_order_acquire);
    is_whole_file = is_whole_file && copy(&file->reader, at, file->records, len);
    atomic_thread_fence(memory_order_acquire);
    if (!is_whole_file || !copy(&file->reader, at, file->after, len))
        return sl_fail(-EBADMSG, "%s was cut while it was read", file->tale.name);
    for (uint32_t i = 0; i < count && err == 0; i++)
        if (file->before[i].turn == file->after[i].turn &&
            is_whole(section, file->before[i].turn, first + i))
            err = file->found(file, &file->records[i]);
    return err;
}

static int read_section(struct file *file, enum sl_state_kind kind)
{
    struct sl_state_section section;
    int err = 0;

    if (!sl_state_find(&file->reader, kind, &section))
        return 0;
    if (section.record_bytes != sizeof(struct record))
        return sl_fail(-EBADMSG, "%s has records of %u bytes, and those of NCCL have %zu",
                       file->tale.name, section.record_bytes, sizeof(struct record));
    for (uint32_t i = 0; i < section.count && err == 0; i += CHUNK)
        err = read_chunk(file, &section, i, section.count - i < CHUNK ? section.count - i : CHUNK);
    return err;
}

static int read_records(struct file *file, int (*found)(struct file *, const struct record *))
{
    int err;

    file->found = found;
    err = read_section(file, SL_STATE_NCCL_OPEN);
    return err == 0 ? read_section(file, SL_STATE_NCCL_OVER) : err;
}

/* ---- calls and parts ---- */

static int64_t time_of(uint64_t ns)
{
    return ns < INT64_MAX / 4 ? (int64_t)ns : 0;
}

static void later(struct sl_nccl_tale *tale, uint64_t ns)
{
    if (time_of(ns) > tale->now_ns)
        tale->now_ns = time_of(ns);
}

/* Of this communicator, and not of one that had its place before. */
static bool is_of_comm(const struct file *file, const struct record *record)
{
    return record->comm < file->tale.comm_count && file->tale.comms[record->comm].ranks > 0 &&
           time_of(record->start_ns) >= file->tale.comms[record->comm].start_ns;
}

static void take_text(char *out, const char *text, size_t cap)
{
    memcpy(out, text, cap);
    out[cap] = '\0';
    sl_tame_text(out);
    for (; *out != '\0'; out++)
        if ((unsigned char)*out > 126)
            *out = '?';
}

static int add_call(struct file *file, const struct record *record)
{
    struct sl_nccl_call *call = sl_nccl_add_call(&file->tale);

    if (call == NULL)
        return -ENOMEM;
    *call = (struct sl_nccl_call){.id = record->id,
                                  .seq = record->op.seq,
                                  .count = record->op.count,
                                  .start_ns = time_of(record->start_ns),
                                  .kernel_ns = SL_JOB_NEVER,
                                  .comm = record->comm,
                                  .root = record->op.root,
                                  .is_message = record->type == P2P};
    take_text(call->func, record->op.func, sizeof(record->op.func));
    take_text(call->datatype, record->op.datatype, sizeof(record->op.datatype));
    return 0;
}

static int add_part(struct file *file, const struct record *record)
{
    bool is_kernel = record->type != PROXY_OP;
    struct sl_nccl_part *part = sl_nccl_add_part(&file->tale);

    if (part == NULL)
        return -ENOMEM;
    *part = (struct sl_nccl_part){.id = record->id,
                                  .call = record->parent,
                                  .comm = record->comm,
                                  .peer = is_kernel ? SL_JOB_NONE : (uint32_t)record->proxy.peer,
                                  .is_send = !is_kernel && record->proxy.is_send != 0,
                                  .is_open = record->stop_ns == 0,
                                  .start_ns = time_of(record->start_ns),
                                  .at_ns = time_of(record->stop_ns)};
    file->tale.has_kernels = file->tale.has_kernels || is_kernel;
    return 0;
}

/* A kernel's phases are children of its channel's event, which is there too. */
static int find_call(struct file *file, const struct record *record)
{
    later(&file->tale, record->start_ns);
    later(&file->tale, record->stop_ns);
    later(&file->tale, record->state_ns);
    if (!is_of_comm(file, record))
        return 0;
    switch (record->type) {
    case COLL:
    case P2P: return add_call(file, record);
    case PROXY_OP:
    case KERNEL_CH: return add_part(file, record);
    default: return 0;
    }
}

/* ---- steps ---- */

static int by_id(const void *a, const void *b)
{
    const struct sl_nccl_part *x = a, *y = b;

    return x->id < y->id ? -1 : x->id > y->id;
}

static void add_over(struct sl_nccl_part *part, const struct record *record)
{
    bool is_send = record->step.is_send != 0;
    double wait_s[3];

    for (unsigned i = 0; i < 3; i++)
        wait_s[i] = (double)time_of(record->step.wait_ns[i]) / 1e9;
    part->messages++;
    part->bytes += record->step.bytes < UINT64_MAX / 4 ? record->step.bytes : 0;
    part->wait_s[is_send ? SL_JOB_WAIT_GPU : SL_JOB_WAIT_CONSUMER] += wait_s[0];
    part->wait_s[SL_JOB_WAIT_PEER] += wait_s[1];
    part->wait_s[is_send ? SL_JOB_WAIT_WIRE : SL_JOB_WAIT_DATA] += wait_s[2];
}

static void add_open(const struct file *file, struct sl_nccl_part *part,
                     const struct record *record)
{
    enum sl_job_wait wait = sl_nccl_wait_of(record->state);
    int64_t since = time_of(record->state_ns);
    double s = (double)(file->tale.now_ns - since) / 1e9;

    if (wait == SL_JOB_WAITS || s < 0)
        return;
    if (s > part->waits_s[wait])
        part->waits_s[wait] = s;
    if (wait == SL_JOB_WAIT_GPU || wait == SL_JOB_WAIT_CONSUMER)
        part->at_gpu++;
    else
        part->at_others++;
    if ((wait == SL_JOB_WAIT_DATA || wait == SL_JOB_WAIT_PEER) && part->peer < SL_JOB_RANKS_MAX &&
        (part->awaits == 0 || since < part->awaits_since_ns)) {
        part->awaits = part->peer + 1;
        part->awaits_since_ns = since;
    }
}

static int find_step(struct file *file, const struct record *record)
{
    struct sl_nccl_part key = {.id = record->parent}, *part;

    if (record->type != PROXY_STEP || record->parent == 0 || file->tale.part_count == 0)
        return 0;
    part = bsearch(&key, file->tale.parts, file->tale.part_count, sizeof(key), by_id);
    if (part == NULL || part->peer == SL_JOB_NONE || part->comm != record->comm)
        return 0;
    if (record->stop_ns != 0)
        add_over(part, record);
    else
        add_open(file, part, record);
    return 0;
}

/* ---- what is around them ---- */

static int read_comms(struct file *file)
{
    uint32_t count = sl_state_count(&file->reader, SL_STATE_NCCL_COMM);

    for (uint32_t i = 0; i < count && i < COMMS; i++) {
        struct sl_nccl_comm *to = sl_nccl_add_comm(&file->tale);
        struct comm in;

        if (to == NULL)
            return -ENOMEM;
        if (sl_state_get(&file->reader, SL_STATE_NCCL_COMM, i, &in, sizeof(in)) != SL_STATE_WHOLE ||
            in.rank < 0 || in.ranks <= in.rank || in.ranks > (int32_t)SL_JOB_RANKS_MAX)
            continue;
        *to = (struct sl_nccl_comm){.id = in.id,
                                    .rank = (uint32_t)in.rank,
                                    .ranks = (uint32_t)in.ranks,
                                    .calls = atomic_load(&in.calls) & (WRITING - 1),
                                    .start_ns = time_of(in.start_ns)};
        take_text(to->name, in.name, sizeof(in.name));
        /* Who keeps its file ends its communicators first. */
        file->tale.is_gone =
            file->tale.is_gone || (file->is_process_gone && atomic_load(&in.lives) != 0);
    }
    return 0;
}

/* Where its process put it: this host's clock, and its processes. */
static void look_around(struct file *file, const struct sl_state_process *self)
{
    struct stat st = {0};
    char state;

    file->tale.now_ns = (int64_t)sl_now(&sl_clock_monotonic);
    file->tale.wall_ns = sl_page_wall_ns();
    if (stat("/proc/self/ns/pid", &st) != 0 || (uint64_t)st.st_ino != self->pid_space)
        return;
    state = sl_page_process_state(self->pid, self->start_ticks);
    file->is_process_gone = state == '?';
    if (state == 'T' || state == 't')
        snprintf(file->tale.halt, sizeof(file->tale.halt), "is stopped by a %s",
                 state == 'T' ? "signal" : "debugger");
}

static int read_head(struct file *file)
{
    struct sl_state_process self;
    struct head head;
    char host[65];

    if (sl_state_get(&file->reader, SL_STATE_PROCESS, 0, &self, sizeof(self)) != SL_STATE_WHOLE ||
        sl_state_get(&file->reader, SL_STATE_NCCL, 0, &head, sizeof(head)) != SL_STATE_WHOLE)
        return sl_fail(-EBADMSG, "%s does not say whose events it has", file->tale.name);
    file->tale.is_lossy = atomic_load(&head.dropped) > 0;
    take_text(host, self.host, sizeof(self.host));
    snprintf(file->tale.host, sizeof(file->tale.host), "%s", host);
    file->tale.self = self;
    snprintf(file->tale.process, sizeof(file->tale.process), "pid %d on %s", self.pid, host);
    if (self.made_wall_s < INT64_MAX / 1000000000)
        file->tale.wall_ns = (int64_t)(self.made_wall_s * 1000000000) - time_of(self.made_ns);
    if (file->is_in_place)
        look_around(file, &self);
    return read_comms(file);
}

static int read_all(struct file *file, struct sl_job *job)
{
    int err = read_head(file);

    if (err == 0)
        err = read_records(file, find_call);
    if (err == 0 && file->tale.part_count > 0)
        qsort(file->tale.parts, file->tale.part_count, sizeof(*file->tale.parts), by_id);
    if (err == 0)
        err = read_records(file, find_step);
    return err == 0 ? sl_nccl_take(job, &file->tale) : err;
}

/* ---- from where it comes ---- */

static int open_copy(struct file *file, struct sl_read_in *in, void **bytes)
{
    size_t len;
    int err = sl_page_read_all(in, COPY_MAX, bytes, &len);

    return err == 0 ? sl_state_read_memory(*bytes, len, &file->reader) : err;
}

static int read_events(struct sl_job *job, struct sl_read_in *in)
{
    struct file *file = calloc(1, sizeof(*file));
    void *bytes = NULL;
    int err;

    if (file == NULL)
        return no_memory();
    file->tale.name = in->name;
    file->is_in_place = in->fd != NULL && strncmp(in->name, PLACE, strlen(PLACE)) == 0;
    err = in->fd != NULL ? sl_state_read_fd(*in->fd, &file->reader) : open_copy(file, in, &bytes);
    if (err == -EPROTO)
        err = sl_fail(-EBADMSG, "%s: %s", in->name, sluice_last_error());
    if (err == 0)
        err = read_all(file, job);
    sl_nccl_free(&file->tale);
    free(bytes);
    free(file);
    return err;
}

/* By its table of sections, which lies at the beginning. */
static bool is_events(const char *head, size_t len)
{
    struct sl_state_header header;

    if (len < sizeof(header))
        return false;
    memcpy(&header, head, sizeof(header));
    if (memcmp(header.magic, SL_STATE_MAGIC, sizeof(header.magic)) != 0)
        return false;
    for (uint32_t i = 0; i < header.section_count && i < SL_STATE_SECTIONS_MAX; i++) {
        uint64_t at = header.header_bytes + (uint64_t)i * header.section_bytes;
        uint32_t kind;

        if (at + sizeof(kind) > len)
            return false;
        memcpy(&kind, head + at, sizeof(kind));
        if (kind == SL_STATE_NCCL)
            return true;
    }
    return false;
}

const struct sl_read_format sl_read_nccl = {
    .name = "events of NCCL's profiler", .is = is_events, .read = read_events};
