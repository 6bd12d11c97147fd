/* SPDX-License-Identifier: Apache-2.0 */
/* Copies records of a state page, believing nothing that it says. */
#include "core/state_read.h"

#include "core/err.h"
#include "core/event.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRIES 32 /* to find a record whole */
#define RECORD_MAX 8192
#define ERRORS_MAX 64             /* that are looked at */
#define COUNT_MAX 65536           /* records of a section that are looked at */
#define NCCL_COUNT_MAX (1u << 24) /* of one of NCCL's: as SLUICE_NCCL_PROFILE_EVENTS has it */

/* ---- bytes ---- */

static bool copy_file(int fd, uint64_t off, void *to, size_t len)
{
    for (size_t got = 0; got < len;) {
        ssize_t n = pread(fd, (char *)to + got, len - got, (off_t)(off + got));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false; /* it was cut meanwhile */
        got += (size_t)n;
    }
    return true;
}

/* Word by word, as other threads may be writing. off and len are multiples of 8. */
static void copy_memory(const void *page, uint64_t off, void *to, size_t len)
{
    const uint64_t *in = (const uint64_t *)((const char *)page + off);

    for (size_t i = 0; i < len / 8; i++) {
        uint64_t word = __atomic_load_n(&in[i], __ATOMIC_RELAXED);

        memcpy((char *)to + 8 * i, &word, 8);
    }
}

/* Inside of reader->bytes. */
static bool copy(const struct sl_state_reader *reader, uint64_t off, void *to, size_t len)
{
    if (reader->fd >= 0)
        return copy_file(reader->fd, off, to, len);
    copy_memory(reader->memory, off, to, len);
    return true;
}

/* ---- opening ---- */

static int refuse(const char *why)
{
    return sl_fail(-EPROTO, "it holds no state page: %s", why);
}

/* All of it lies in the file; sizes so small that no sum overflows. */
static bool section_is_sound(const struct sl_state_section *section, uint64_t bytes)
{
    return section->record_bytes >= 16 && section->record_bytes <= RECORD_MAX &&
           section->record_bytes % 8 == 0 &&
           section->count <= (section->kind >= SL_STATE_NCCL ? NCCL_COUNT_MAX : COUNT_MAX) &&
           section->offset % 8 == 0 && section->offset <= bytes &&
           (uint64_t)section->count * section->record_bytes <= bytes - section->offset;
}

static int read_table(struct sl_state_reader *reader)
{
    struct sl_state_header header;

    if (reader->bytes < sizeof(header) || !copy(reader, 0, &header, sizeof(header)) ||
        memcmp(header.magic, SL_STATE_MAGIC, sizeof(header.magic)) != 0)
        return refuse("it does not begin like one");
    if (header.version != SL_STATE_VERSION)
        return sl_fail(-EPROTO, "its version is %u, and this program reads %d", header.version,
                       SL_STATE_VERSION);
    if (header.file_bytes > reader->bytes || header.header_bytes < sizeof(header) ||
        header.header_bytes > RECORD_MAX || header.header_bytes % 8 != 0 ||
        header.section_bytes < sizeof(struct sl_state_section) ||
        header.section_bytes > RECORD_MAX || header.section_bytes % 8 != 0 ||
        header.section_count > RECORD_MAX ||
        header.header_bytes + (uint64_t)header.section_bytes * header.section_count >
            header.file_bytes)
        return refuse("its sizes do not fit together");
    for (uint32_t i = 0; i < header.section_count; i++) {
        struct sl_state_section *section = &reader->sections[reader->section_count];

        if (reader->section_count == SL_STATE_SECTIONS_MAX)
            break;
        if (!copy(reader, header.header_bytes + (uint64_t)i * header.section_bytes, section,
                  sizeof(*section)))
            return refuse("it was cut");
        if (!section_is_sound(section, header.file_bytes))
            return refuse("a section reaches beyond its end");
        reader->section_count++;
    }
    return 0;
}

int sl_state_read_fd(int fd, struct sl_state_reader *out)
{
    struct stat st;

    *out = (struct sl_state_reader){.fd = fd};
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return refuse("it is no file");
    out->bytes = (uint64_t)st.st_size;
    return read_table(out);
}

int sl_state_read_memory(const void *page, size_t bytes, struct sl_state_reader *out)
{
    *out = (struct sl_state_reader){.fd = -1, .memory = page, .bytes = bytes};
    return read_table(out);
}

/* ---- records ---- */

static const struct sl_state_section *section_of(const struct sl_state_reader *reader,
                                                 enum sl_state_kind kind)
{
    for (unsigned i = 0; i < reader->section_count; i++)
        if (reader->sections[i].kind == (uint32_t)kind)
            return &reader->sections[i];
    return NULL;
}

uint32_t sl_state_count(const struct sl_state_reader *reader, enum sl_state_kind kind)
{
    const struct sl_state_section *section = section_of(reader, kind);

    return section != NULL ? section->count : 0;
}

bool sl_state_find(const struct sl_state_reader *reader, enum sl_state_kind kind,
                   struct sl_state_section *out)
{
    const struct sl_state_section *section = section_of(reader, kind);

    if (section == NULL)
        return false;
    memcpy(out, section, sizeof(*out));
    return true;
}

uint64_t sl_state_count_left_out(const struct sl_state_reader *reader, enum sl_state_kind kind)
{
    const struct sl_state_section *section = section_of(reader, kind);

    return section != NULL ? atomic_load_explicit(&section->left_out, memory_order_relaxed) : 0;
}

/* Between two readings of the turn, kept apart by fences: the kernel's loads are this processor's,
 * too. False: the file was cut. */
static bool copy_between(const struct sl_state_reader *reader, uint64_t at, void *out, size_t len,
                         uint64_t turns[2])
{
    if (!copy(reader, at, &turns[0], 8))
        return false;
    atomic_thread_fence(memory_order_acquire);
    if (!copy(reader, at, out, len))
        return false;
    atomic_thread_fence(memory_order_acquire);
    return copy(reader, at, &turns[1], 8);
}

#define END(text) ((text)[sizeof(text) - 1] = '\0')

static void end_texts(enum sl_state_kind kind, void *record)
{
    struct sl_state_process *process = record;
    struct sl_state_comm *comm = record;
    struct sl_state_op *op = record;
    struct sl_state_path *path = record;
    struct sl_state_shape *shape = record;
    struct sl_event_row *row = record;
    struct sl_state_error *error = record;
    struct sl_state_call *call = record;

    switch (kind) {
    case SL_STATE_PROCESS:
        END(process->program), END(process->version), END(process->host), END(process->job);
        break;
    case SL_STATE_COMM: END(comm->transports), END(comm->error_text); break;
    case SL_STATE_OP:
        END(op->coll), END(op->dtype), END(op->redop), END(op->algo), END(op->doing), END(op->path);
        break;
    case SL_STATE_PATH: END(path->name), END(path->state), END(path->why); break;
    case SL_STATE_SHAPE:
        END(shape->coll), END(shape->dtype), END(shape->redop), END(shape->algo);
        break;
    case SL_STATE_EVENT_ROW: END(row->name), END(row->area), END(row->a), END(row->b); break;
    case SL_STATE_ERROR: END(error->area), END(error->text); break;
    case SL_STATE_CALL: END(call->coll); break;
    case SL_STATE_EVENT:
    case SL_STATE_NCCL:
    case SL_STATE_NCCL_COMM:
    case SL_STATE_NCCL_OPEN:
    case SL_STATE_NCCL_OVER: break;
    }
}

enum sl_state_is sl_state_get(const struct sl_state_reader *reader, enum sl_state_kind kind,
                              uint32_t place, void *out, size_t bytes)
{
    const struct sl_state_section *section = section_of(reader, kind);
    uint64_t turns[2] = {1, 1};
    bool whole = false;

    memset(out, 0, bytes);
    if (section == NULL || place >= section->count)
        return SL_STATE_UNUSED;
    uint64_t at = section->offset + (uint64_t)place * section->record_bytes;
    size_t len = bytes < section->record_bytes ? bytes : section->record_bytes;

    for (int tries = 0; tries < TRIES && !whole; tries++) {
        if (!copy_between(reader, at, out, len, turns)) {
            memset(out, 0, bytes);
            return SL_STATE_TORN;
        }
        whole = turns[0] == turns[1] && turns[0] % 2 == 0;
    }
    end_texts(kind, out);
    return !whole ? SL_STATE_TORN : turns[0] == 0 ? SL_STATE_UNUSED : SL_STATE_WHOLE;
}

bool sl_state_get_error(const struct sl_state_reader *reader, uint64_t comm,
                        struct sl_state_error *out)
{
    uint32_t count = sl_state_count(reader, SL_STATE_ERROR);

    for (uint32_t i = 0; comm != 0 && i < count && i < ERRORS_MAX; i++)
        if (sl_state_get(reader, SL_STATE_ERROR, i, out, sizeof(*out)) == SL_STATE_WHOLE &&
            out->comm == comm)
            return true;
    return false;
}

enum sl_state_is sl_state_get_event(const struct sl_state_reader *reader, uint32_t place,
                                    struct sl_event *out, uint64_t *number)
{
    const struct sl_state_section *section = section_of(reader, SL_STATE_EVENT);
    uint64_t words[sizeof(struct sl_event_record) / 8] = {0}, turns[2];

    *number = 0;
    memset(out, 0, sizeof(*out));
    if (section == NULL || place >= section->count || section->record_bytes < sizeof(words))
        return SL_STATE_UNUSED;
    if (!copy_between(reader, section->offset + (uint64_t)place * section->record_bytes, words,
                      sizeof(words), turns))
        return SL_STATE_TORN;
    memcpy(out, &words[1], sizeof(*out));
    *number = turns[0];
    /* A record that was never written has no number and no event. */
    if (turns[0] == 0 && turns[1] == 0)
        return out->time_ns == 0 && out->a == 0 && out->b == 0 ? SL_STATE_UNUSED : SL_STATE_TORN;
    return turns[0] == turns[1] ? SL_STATE_WHOLE : SL_STATE_TORN;
}
