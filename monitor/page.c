/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/page.h"
#include "monitor/page_look.h"

#include "core/err.h"
#include "core/state_text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OPEN_EVERY 4  /* readings between two of its table */
#define COMMS_EVERY 8 /* and between two looks at all places of communicators */
#define OPS_FIRST 8u
#define OPS_EVERY 4    /* readings between two looks at all operations */
#define PATHS_EVERY 2  /* and at paths */
#define PATHS_LOOK 256 /* places that are looked at in a reading */
#define BEGUN_MASK ((UINT64_C(1) << SL_STATE_SHAPE_SHIFT) - 1)

void sl_mon_page_init(struct sl_mon_page *page, int fd)
{
    *page = (struct sl_mon_page){.fd = fd};
}

void sl_mon_page_fini(struct sl_mon_page *page)
{
    free(page->paths);
    *page = (struct sl_mon_page){.fd = -1};
}

/* ---- communicators ---- */

static bool see_comm(void *arg, uint32_t place, const struct sl_mon_glance *at)
{
    struct sl_mon_page *page = arg;

    for (unsigned i = 0; i < page->comm_count; i++)
        if (page->comms[i].place == place)
            return false;
    if (at->number != 0 && page->comm_count < SL_MON_PAGE_COMMS)
        page->comms[page->comm_count++] = (struct sl_mon_page_comm){.place = place};
    return false; /* each is read below */
}

static void count_calls(struct sl_mon_page_comm *comm, const struct sl_state_comm *record,
                        bool is_known, struct sl_mon_page_change *out)
{
    for (unsigned i = 0; i < 2; i++) {
        uint64_t begun = atomic_load_explicit(&record->calls.begun[i], memory_order_relaxed);
        uint64_t ended = atomic_load_explicit(&record->calls.ended[i], memory_order_relaxed);

        begun &= BEGUN_MASK;
        /* What a communicator did before it was seen first counts, too. */
        if (begun > comm->begun[i])
            out->begun[i] += begun - (is_known ? comm->begun[i] : 0);
        if (ended > comm->ended[i])
            out->ended[i] += ended - (is_known ? comm->ended[i] : 0);
        comm->begun[i] = begun;
        comm->ended[i] = ended;
        if (i == 0)
            comm->shape = atomic_load_explicit(&record->calls.begun[i], memory_order_relaxed) >>
                          SL_STATE_SHAPE_SHIFT;
    }
}

/* False: its place is free. */
static bool read_comm(struct sl_mon_page *page, struct sl_mon_page_comm *comm,
                      struct sl_mon_page_change *out)
{
    struct sl_state_comm record;
    enum sl_state_is is =
        sl_state_get(&page->reader, SL_STATE_COMM, comm->place, &record, sizeof(record));

    comm->is_new_break = false;
    if (is == SL_STATE_TORN)
        return comm->number != 0; /* as it was */
    if (is != SL_STATE_WHOLE || record.number == 0)
        return false;
    bool is_known = comm->number == record.number;

    if (!is_known)
        *comm = (struct sl_mon_page_comm){.place = comm->place, .number = record.number};
    count_calls(comm, &record, is_known, out);
    comm->is_new_break =
        (record.flags & SL_STATE_BROKEN) != 0 && (comm->flags & SL_STATE_BROKEN) == 0;
    out->broken += comm->is_new_break;
    comm->id = record.id;
    comm->made_ns = record.made_ns;
    comm->idle_ns = record.idle_ns;
    comm->updated_ns = record.updated_ns;
    comm->disputed = record.disputed;
    comm->rank = record.rank;
    comm->size = record.size;
    comm->lost = record.lost;
    comm->flags = record.flags;
    comm->error = record.error;
    comm->culprit = record.culprit;
    return true;
}

static void read_comms(struct sl_mon_page *page, bool look_at_all, struct sl_mon_page_change *out)
{
    const struct sl_mon_look look = {
        .wants = see_comm, .arg = page, .bytes = sizeof(struct sl_state_comm)};
    unsigned kept = 0;

    if (look_at_all)
        sl_mon_look(&page->reader, SL_STATE_COMM, 0, SL_MON_PAGE_COMMS, &look);
    page->under_way = 0;
    for (unsigned i = 0; i < page->comm_count; i++) {
        struct sl_mon_page_comm *comm = &page->comms[i];

        if (!read_comm(page, comm, out))
            continue;
        for (unsigned k = 0; k < 2; k++)
            if (comm->begun[k] > comm->ended[k])
                page->under_way += comm->begun[k] - comm->ended[k];
        page->comms[kept++] = *comm;
    }
    page->comm_count = kept;
}

/* ---- operations ---- */

static bool wants_op(void *arg, uint32_t place, const struct sl_mon_glance *at)
{
    (void)arg;
    (void)place;
    return at->number != 0;
}

static bool take_op(void *arg, uint32_t place, const void *record)
{
    struct sl_mon_page *page = arg;
    const struct sl_state_op *op = record;

    (void)place;
    page->op_count++;
    if (page->op_count == 1 || op->since_ns < page->op.since_ns)
        page->op = *op;
    return true;
}

#define END(text) ((text)[sizeof(text) - 1] = '\0')

static void read_ops(struct sl_mon_page *page)
{
    const struct sl_mon_look look = {
        .wants = wants_op, .take = take_op, .arg = page, .bytes = sizeof(struct sl_state_op)};
    struct sl_state_op *op = &page->op;

    page->op_count = 0;
    page->op_comm_id = 0;
    if (page->under_way == 0)
        return;
    /* The first free place is taken: most pages have all in the first ones. */
    if (sl_mon_look(&page->reader, SL_STATE_OP, 0, OPS_FIRST, &look) == OPS_FIRST &&
        (page->op_count >= OPS_FIRST / 2 || page->readings % OPS_EVERY == 0))
        sl_mon_look(&page->reader, SL_STATE_OP, OPS_FIRST, SL_MON_PAGE_OPS - OPS_FIRST, &look);
    END(op->coll), END(op->dtype), END(op->redop), END(op->algo), END(op->doing), END(op->path);
    for (unsigned i = 0; i < page->comm_count && page->op_count > 0; i++)
        if (page->comms[i].number == page->op.comm)
            page->op_comm_id = page->comms[i].id;
}

/* ---- events ---- */

/* A name that may be a metric's label. */
static void take_name(const char *from, size_t cap, char *out)
{
    size_t i = 0;

    for (; i + 1 < cap && from[i] != '\0'; i++)
        out[i] = (from[i] >= 'a' && from[i] <= 'z') || (from[i] >= '0' && from[i] <= '9') ? from[i]
                                                                                          : '_';
    out[i] = '\0';
}

/* Counts stand outside of the turn: one reading of all rows will do. */
static void read_events(struct sl_mon_page *page, struct sl_mon_page_change *out)
{
    struct sl_event_row rows[SL_EVENT_KINDS_MAX];
    struct sl_state_section section;

    if (!sl_state_find(&page->reader, SL_STATE_EVENT_ROW, &section) ||
        section.record_bytes != sizeof(rows[0]))
        return;
    uint32_t count = section.count < SL_EVENT_KINDS_MAX ? section.count : SL_EVENT_KINDS_MAX;

    if (pread(page->reader.fd, rows, count * sizeof(rows[0]), (off_t)section.offset) !=
        (ssize_t)(count * sizeof(rows[0])))
        return;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t came = atomic_load_explicit(&rows[i].count, memory_order_relaxed);

        if (atomic_load_explicit(&rows[i].turn, memory_order_relaxed) != 2)
            continue;
        if (page->event_names[i][0] == '\0')
            take_name(rows[i].name, sizeof(page->event_names[i]), page->event_names[i]);
        if (came > page->events[i])
            out->events[i] = came - page->events[i];
        page->events[i] = came;
    }
}

/* ---- a reading ---- */

int sl_mon_page_read(struct sl_mon_page *page, struct sl_mon_page_change *out)
{
    uint32_t made = page->self.comms_made;
    struct sl_state_process self;
    /* Its sizes stay as they are but for that of paths, which grows. */
    int err = page->readings % OPEN_EVERY == 0 ? sl_state_read_fd(page->fd, &page->reader) : 0;

    *out = (struct sl_mon_page_change){.broken = 0};
    if (err != 0)
        return err;
    if (sl_state_get(&page->reader, SL_STATE_PROCESS, 0, &self, sizeof(self)) == SL_STATE_WHOLE)
        page->self = self;
    read_comms(page,
               page->readings == 0 || page->self.comms_made != made ||
                   page->readings % COMMS_EVERY == 0,
               out);
    read_ops(page);
    read_events(page, out);
    page->readings++;
    return 0;
}

/* ---- paths ---- */

struct paths {
    struct sl_mon_page *page;
    uint64_t now_ns;
    int16_t (*port)(void *arg, const char *name);
    void (*changed)(void *arg, int16_t port, const struct sl_mon_path_change *change);
    void *arg;
};

static bool wants_path(void *arg, uint32_t place, const struct sl_mon_glance *at)
{
    const struct paths *paths = arg;
    struct sl_mon_path *path = &paths->page->paths[place];

    if (at->number == 0)
        sl_mon_path_end(path);
    return at->number != 0 && at->turn != path->turn;
}

static bool take_path(void *arg, uint32_t place, const void *record)
{
    const struct paths *paths = arg;
    struct sl_state_path path = *(const struct sl_state_path *)record;
    struct sl_mon_path_change change;
    char name[SL_MON_NAME];
    int16_t port = -1;

    END(path.name), END(path.state), END(path.why);
    if (path.number >= SL_STATE_PATH_ROUTE) { /* a part of a path that is here, too */
        sl_mon_path_end(&paths->page->paths[place]);
        return true;
    }
    if (sl_mon_path_port(path.name, name, sizeof(name)))
        port = paths->port(paths->arg, name);
    change = sl_mon_path_read(&paths->page->paths[place], paths->now_ns, port, &path);
    paths->changed(paths->arg, port, &change);
    return true;
}

/* Places for as many paths as the page has by now. */
static bool make_room(struct sl_mon_page *page, uint32_t count)
{
    struct sl_mon_path *paths;

    if (count <= page->path_count)
        return true;
    paths = realloc(page->paths, count * sizeof(*paths));
    if (paths == NULL)
        return false;
    memset(&paths[page->path_count], 0, (count - page->path_count) * sizeof(*paths));
    page->paths = paths;
    page->path_count = count;
    return true;
}

void sl_mon_page_paths(
    struct sl_mon_page *page, uint64_t now_ns, int16_t (*port)(void *arg, const char *name),
    void (*changed)(void *arg, int16_t port, const struct sl_mon_path_change *change), void *arg)
{
    uint32_t count = sl_state_count(&page->reader, SL_STATE_PATH);
    struct paths paths = {
        .page = page, .now_ns = now_ns, .port = port, .changed = changed, .arg = arg};
    const struct sl_mon_look look = {.wants = wants_path,
                                     .take = take_path,
                                     .arg = &paths,
                                     .bytes = sizeof(struct sl_state_path)};

    if (page->readings % PATHS_EVERY != (unsigned)page->self.pid % PATHS_EVERY)
        return; /* a part of all ranks at a time */
    page->paths_left_out = sl_state_count_left_out(&page->reader, SL_STATE_PATH);
    if (count > SL_MON_PAGE_PATHS)
        count = SL_MON_PAGE_PATHS; /* those beyond are seen by their ranks alone */
    if (count == 0 || !make_room(page, count))
        return;
    if (page->path_next >= count)
        page->path_next = 0;
    page->path_next = sl_mon_look(
        &page->reader, SL_STATE_PATH, page->path_next,
        count - page->path_next < PATHS_LOOK ? count - page->path_next : PATHS_LOOK, &look);
}

/* ---- in words ---- */

void sl_mon_page_text(const struct sl_mon_page *page, uint64_t now_ns, char *out, size_t cap)
{
    char text[512];

    if (page->op_count > 0) {
        size_t len = sl_state_op_text(&page->op, text, sizeof(text) - 1);

        text[len < sizeof(text) ? len : sizeof(text) - 1] = '\0';
        snprintf(out, cap, "it was in %s, since %.1f s", text,
                 now_ns > page->op.since_ns ? (double)(now_ns - page->op.since_ns) / 1e9 : 0.0);
    } else if (page->under_way > 0) {
        snprintf(out, cap, "it had %llu operations under way", (unsigned long long)page->under_way);
    } else {
        snprintf(out, cap, "no operation was under way");
    }
    sl_tame_text(out);
}

void sl_mon_page_why(const struct sl_mon_page *page, const struct sl_mon_page_comm *comm, char *out,
                     size_t cap)
{
    struct sl_state_comm record;

    out[0] = '\0';
    if (sl_state_get(&page->reader, SL_STATE_COMM, comm->place, &record, sizeof(record)) ==
            SL_STATE_WHOLE &&
        record.number == comm->number)
        snprintf(out, cap, "%s", record.error_text);
    sl_tame_text(out);
}
