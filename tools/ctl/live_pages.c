/* SPDX-License-Identifier: Apache-2.0 */
/* State pages of this host, what agents say of those of theirs, and those that are of one job. */
#include "core/err.h"
#include "monitor/read/formats.h"
#include "tools/ctl/live.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER "/dev/shm"
#define PAGES_MAX 65536

int sc_pages_add(struct sc_pages *pages, struct sl_page *page)
{
    struct sl_page *more;
    unsigned cap = pages->cap == 0 ? 16 : 2 * pages->cap;

    if (pages->count == pages->cap) {
        more = cap <= PAGES_MAX ? reallocarray(pages->list, cap, sizeof(*more)) : NULL;
        if (more == NULL) {
            sl_page_free(page);
            return sl_fail(-ENOMEM, "no memory for %u processes", cap);
        }
        pages->list = more;
        pages->cap = cap;
    }
    pages->list[pages->count++] = *page;
    return 0;
}

void sc_pages_free(struct sc_pages *pages)
{
    for (unsigned i = 0; i < pages->count; i++)
        sl_page_free(&pages->list[i]);
    free(pages->list);
    *pages = (struct sc_pages){.list = NULL};
}

/* ---- of this host ---- */

static void look_at_process(struct sl_page *page)
{
    char state = sl_page_process_state(page->self.pid, page->self.start_ticks);

    if (state == 'T')
        snprintf(page->halt, sizeof(page->halt), "is stopped by a signal");
    else if (state == 't')
        snprintf(page->halt, sizeof(page->halt), "is stopped by a debugger");
}

static int read_one(struct sc_pages *pages, const char *name, unsigned user)
{
    char path[320];
    struct sl_page page;
    struct stat st;
    int fd, err;

    snprintf(path, sizeof(path), FOLDER "/%s", name);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        pages->unreadable += errno == EACCES;
        return errno == EMFILE ? sl_fail(-EMFILE, "%s: %s", path, strerror(errno)) : 0;
    }
    err = fstat(fd, &st) == 0 && st.st_uid == user ? sl_page_read_fd(fd, &page) : -EPERM;
    if (err == 0) {
        sl_page_in_place(&page, fd);
        if (page.life == SL_PAGE_LIVES)
            look_at_process(&page);
    }
    close(fd);
    if (err == 0)
        return sc_pages_add(pages, &page);
    pages->unreadable++;
    return err == -ENOMEM ? err : 0;
}

int sc_pages_of_host(struct sc_pages *pages)
{
    DIR *dir = opendir(FOLDER);
    struct dirent *entry;
    int err = 0;

    if (dir == NULL)
        return sl_fail(-errno, FOLDER " cannot be read: %s", strerror(errno));
    while (err == 0 && (entry = readdir(dir)) != NULL) {
        unsigned user, pid, copy;
        int end = 0;

        if (sscanf(entry->d_name, "sluice.%u.%u.%u%n", &user, &pid, &copy, &end) == 3 &&
            entry->d_name[end] == '\0')
            err = read_one(pages, entry->d_name, user);
    }
    closedir(dir);
    return err;
}

/* ---- of an agent ---- */

static int add_page(void *arg, struct sl_page *page)
{
    return sc_pages_add(arg, page);
}

/* Calls that make no sense are left out, and the rest is believed all the same. */
static int take_calls(struct sc_source *source, struct json_object *answer, struct sc_pages *pages,
                      unsigned first)
{
    struct json_object *calls;
    int err = json_object_object_get_ex(answer, "calls", &calls)
                  ? sl_calls_take(&source->calls, calls)
                  : 0;

    if (err == -EBADMSG) {
        if (!source->is_strange)
            fprintf(stderr, "sluicectl: %s: %s\n", source->word, sluice_last_error());
        source->is_strange = true;
        err = 0;
    }
    for (unsigned i = first; i < pages->count && err == 0; i++)
        err = sl_calls_give(&source->calls, &pages->list[i]);
    return err;
}

int sc_pages_of_agent(struct sc_source *source, const struct sc_answer *answer,
                      struct sc_pages *pages, struct sl_job *job)
{
    struct json_object *object = json_tokener_parse(answer->bytes);
    unsigned first = pages->count;
    int err = object == NULL ? sl_fail(-EBADMSG, "it says what is no JSON")
                             : sl_page_each_of_agent(object, add_page, pages);

    if (err == 0)
        err = sl_read_agent_ports(job, object);
    if (err == 0)
        err = take_calls(source, object, pages, first);
    json_object_put(object);
    return err == -EBADMSG ? sl_fail(err, "%s: %s", source->word, sluice_last_error()) : err;
}

/* ---- of one job ---- */

struct key {
    uint64_t id;
    uint32_t size, page;
};

static int by_key(const void *a, const void *b)
{
    const struct key *x = a, *y = b;

    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    if (x->size != y->size)
        return x->size < y->size ? -1 : 1;
    return x->page < y->page ? -1 : x->page > y->page;
}

static uint32_t root_of(uint32_t *parents, uint32_t i)
{
    while (parents[i] != i)
        i = parents[i] = parents[parents[i]];
    return i;
}

/* Pages that speak of one communicator are of one job. */
static bool join(const struct sc_pages *pages, uint32_t *parents)
{
    size_t count = 0, at = 0;
    struct key *keys;

    for (unsigned i = 0; i < pages->count; i++)
        count += pages->list[i].comm_count;
    keys = reallocarray(NULL, count + 1, sizeof(*keys));
    if (keys == NULL)
        return false;
    for (unsigned i = 0; i < pages->count; i++)
        for (uint32_t k = 0; k < pages->list[i].comm_count; k++)
            keys[at++] = (struct key){pages->list[i].comms[k].id, pages->list[i].comms[k].size, i};
    qsort(keys, count, sizeof(*keys), by_key);
    for (size_t i = 1; i < count; i++)
        if (keys[i].id == keys[i - 1].id && keys[i].size == keys[i - 1].size &&
            strcmp(pages->list[keys[i].page].self.job, pages->list[keys[i - 1].page].self.job) == 0)
            parents[root_of(parents, keys[i].page)] = root_of(parents, keys[i - 1].page);
    free(keys);
    return true;
}

struct group {
    unsigned alive, pages;
    int64_t latest;
};

static bool is_better(const struct group *a, const struct group *b)
{
    if (a->alive != b->alive)
        return a->alive > b->alive;
    return a->latest > b->latest;
}

static void add_to_group(struct group *group, const struct sl_page *page)
{
    int64_t latest = (int64_t)sl_page_latest(page) + page->wall_ns;

    group->pages++;
    group->alive += page->life == SL_PAGE_LIVES;
    group->latest = latest > group->latest ? latest : group->latest;
}

static unsigned keep(struct sc_pages *pages, uint32_t *parents, uint32_t root)
{
    unsigned kept = 0, left = pages->count;

    for (unsigned i = 0; i < pages->count; i++)
        parents[i] = root_of(parents, i);
    for (unsigned i = 0; i < pages->count; i++) {
        if (parents[i] == root)
            pages->list[kept++] = pages->list[i];
        else
            sl_page_free(&pages->list[i]);
    }
    pages->count = kept;
    return left - kept;
}

unsigned sc_pages_choose(struct sc_pages *pages, const char *job)
{
    uint32_t *parents = calloc(pages->count + 1, sizeof(*parents)), best = UINT32_MAX;
    struct group *groups = calloc(pages->count + 1, sizeof(*groups));
    unsigned left = 0;

    for (uint32_t i = 0; parents != NULL && i < pages->count; i++)
        parents[i] = i;
    if (parents != NULL && groups != NULL && join(pages, parents)) {
        for (uint32_t i = 0; i < pages->count; i++)
            add_to_group(&groups[root_of(parents, i)], &pages->list[i]);
        for (uint32_t i = 0; i < pages->count; i++)
            if (groups[i].pages > 0 && pages->list[i].self.rank >= 0 &&
                (job == NULL || strcmp(pages->list[i].self.job, job) == 0) &&
                (best == UINT32_MAX || is_better(&groups[i], &groups[best])))
                best = i;
        left = keep(pages, parents, best);
    }
    free(groups);
    free(parents);
    return left;
}
