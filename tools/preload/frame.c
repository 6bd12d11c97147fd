/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shim's frame: whether it is on, where the calls of a family go, and the line at exit. Nothing
 * here runs before the first call that could be taken; there is no constructor.
 */
#include "tools/preload/frame.h"

#include "core/err.h"
#include "core/stderr_line.h"
#include "tools/preload/config.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_MAX_BYTES 2048

static pthread_mutex_t resolve_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t note_lock =
    PTHREAD_MUTEX_INITIALIZER; /* modules take it while they are opened */
static _Atomic int exit_pid;   /* of the process that will print; 0: none yet */
static _Atomic int world_rank = -1;

static struct sl_preload_family *family_of(const struct sl_preload_host *host)
{
    return (struct sl_preload_family *)((uintptr_t)host - offsetof(struct sl_preload_family, host));
}

/* ---- the report ---- */

struct line {
    char text[LINE_MAX_BYTES];
    size_t len;
};

static void add(struct line *line, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(struct line *line, const char *fmt, ...)
{
    size_t room = sizeof(line->text) - line->len;
    va_list args;

    va_start(args, fmt);
    int n = vsnprintf(line->text + line->len, room, fmt, args);

    va_end(args);
    if (n > 0)
        line->len += (size_t)n < room ? (size_t)n : room - 1;
}

static const char *const why_names[SL_WHY_COUNT] = {
    [SL_WHY_TYPE] = "type", [SL_WHY_OP] = "operator",         [SL_WHY_COMM] = "communicator",
    [SL_WHY_SIZE] = "size", [SL_WHY_EARLY] = "too few calls", [SL_WHY_ENGINE] = "no engine",
    [SL_WHY_FORM] = "form",
};

static uint64_t passed_of(const struct sl_preload_count *count)
{
    uint64_t sum = 0;

    for (int why = 0; why < SL_WHY_COUNT; why++)
        sum += atomic_load(&count->passed[why]);
    return sum;
}

static void add_taken(struct line *line)
{
    const char *before = " (";

    for (struct sl_preload_family *const *f = sl_preload_families; *f != NULL; f++)
        for (unsigned i = 0; i < (*f)->call_count; i++) {
            uint64_t taken = atomic_load(&(*f)->counts[i].taken);

            if (taken == 0)
                continue;
            add(line, "%s%s %llu", before, (*f)->calls[i], (unsigned long long)taken);
            before = ", ";
        }
    if (before[0] == ',')
        add(line, ")");
}

static void add_passed(struct line *line)
{
    const char *before = " (";

    for (struct sl_preload_family *const *f = sl_preload_families; *f != NULL; f++)
        for (unsigned i = 0; i < (*f)->call_count; i++)
            for (int why = 0; why < SL_WHY_COUNT; why++) {
                uint64_t passed = atomic_load(&(*f)->counts[i].passed[why]);

                if (passed == 0)
                    continue;
                add(line, "%s%s %llu: %s", before, (*f)->calls[i], (unsigned long long)passed,
                    why_names[why]);
                before = ", ";
            }
    if (before[0] == ',')
        add(line, ")");
}

static void report(void)
{
    uint64_t taken = 0, bytes = 0, ns = 0, passed = 0;
    struct line line = {.len = 0};

    if (atomic_load(&exit_pid) != getpid()) /* a child after fork(): its parent reports */
        return;
    for (struct sl_preload_family *const *f = sl_preload_families; *f != NULL; f++)
        for (unsigned i = 0; i < (*f)->call_count; i++) {
            taken += atomic_load(&(*f)->counts[i].taken);
            bytes += atomic_load(&(*f)->counts[i].bytes);
            ns += atomic_load(&(*f)->counts[i].ns);
            passed += passed_of(&(*f)->counts[i]);
        }
    add(&line, "sluice preload: ");
    if (atomic_load(&world_rank) >= 0)
        add(&line, "rank %d: ", atomic_load(&world_rank));
    add(&line, "took %llu calls, %llu bytes, %.3f ms", (unsigned long long)taken,
        (unsigned long long)bytes, (double)ns / 1e6);
    add_taken(&line);
    add(&line, "; passed on %llu", (unsigned long long)passed);
    add_passed(&line);
    pthread_mutex_lock(&note_lock);
    for (struct sl_preload_family *const *f = sl_preload_families; *f != NULL; f++)
        if ((*f)->note[0] != '\0')
            add(&line, "; %s: %s", (*f)->name, (*f)->note);
    pthread_mutex_unlock(&note_lock);
    sl_stderr_line("%s", line.text);
}

static void counted(void)
{
    int none = 0;

    if (atomic_load_explicit(&exit_pid, memory_order_relaxed) == 0 &&
        atomic_compare_exchange_strong(&exit_pid, &none, getpid()))
        atexit(report);
}

static void keep_note(const struct sl_preload_host *host, const char *sentence)
{
    struct sl_preload_family *family = family_of(host);

    pthread_mutex_lock(&note_lock);
    if (family->note[0] == '\0')
        snprintf(family->note, sizeof(family->note), "%s", sentence);
    pthread_mutex_unlock(&note_lock);
}

static void keep_rank(int rank)
{
    int none = -1;

    atomic_compare_exchange_strong(&world_rank, &none, rank);
}

/* ---- originals ---- */

struct search {
    const char *prefix;
    unsigned skip; /* how many that match were looked at already */
    char path[1024];
};

static int match(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct search *search = arg;
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *base = slash != NULL ? slash + 1 : info->dlpi_name;

    (void)size;
    if (strncmp(base, search->prefix, strlen(search->prefix)) != 0 || search->skip-- != 0)
        return 0;
    snprintf(search->path, sizeof(search->path), "%s", info->dlpi_name);
    return 1;
}

/* A library that is loaded, in whatever scope, and has the family's calls. It is looked for by its
 * file's name because RTLD_NEXT does not see what was opened for one extension module alone. */
static void *find_by_prefix(const struct sl_preload_family *family, const char *prefix)
{
    struct search search = {.prefix = prefix};

    for (unsigned skip = 0;; skip++) {
        search.skip = skip;
        if (dl_iterate_phdr(match, &search) == 0)
            return NULL;
        void *handle = dlopen(search.path, RTLD_LAZY | RTLD_NOLOAD);

        if (handle == NULL)
            continue;
        if (dlsym(handle, family->probe) != NULL)
            return handle;
        dlclose(handle);
    }
}

static void *find_library(const struct sl_preload_family *family)
{
    void *handle = NULL;

    for (const char *const *prefix = family->prefixes; *prefix != NULL && handle == NULL; prefix++)
        handle = find_by_prefix(family, *prefix);
    return handle;
}

static void *find_in_library(const struct sl_preload_host *host, const char *symbol)
{
    struct sl_preload_family *family = family_of(host);

    if (family->library == NULL)
        family->library = find_library(family);
    return family->library != NULL ? dlsym(family->library, symbol) : NULL;
}

static void *find(const struct sl_preload_host *host, const char *symbol)
{
    return dlsym(RTLD_NEXT, symbol) ?: find_in_library(host, symbol);
}

static void *find_object(const struct sl_preload_host *host, const char *symbol)
{
    return dlsym(RTLD_DEFAULT, symbol) ?: find_in_library(host, symbol);
}

static void missing(void)
{
    sl_stderr_line("sluice preload: a call was made that no loaded library answers; start without "
                   "libsluice-preload.so");
    abort();
}

/* ---- modules ---- */

static enum sl_preload_mode read_mode(void)
{
    struct sl_preload_config config;

    if (sl_preload_config_read(&config, environ) == 0)
        return config.mode;
    sl_stderr_line("sluice preload: %s: nothing is taken", sluice_last_error());
    return SL_PRELOAD_MODE_OFF;
}

/* Modules lie beside the shim. */
static int module_path(const char *name, char *out, size_t cap)
{
    static const char anchor;
    Dl_info info;

    if (dladdr(&anchor, &info) == 0 || info.dli_fname == NULL)
        return -ENOENT;
    const char *slash = strrchr(info.dli_fname, '/');
    int dir = slash != NULL ? (int)(slash - info.dli_fname) + 1 : 0;
    int n = snprintf(out, cap, "%.*slibsluice-preload-%s.so", dir, info.dli_fname, name);

    return n > 0 && (size_t)n < cap ? 0 : -ENAMETOOLONG;
}

static int open_module(struct sl_preload_family *family, void **take, char *why, size_t cap)
{
    const char *name = family->module(&family->host, why, cap);
    char path[1200];

    if (name == NULL)
        return -ENOTSUP;
    if (module_path(name, path, sizeof(path)) != 0) {
        snprintf(why, cap, "the place of libsluice-preload.so is not known");
        return -ENOENT;
    }
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    sl_preload_open_fn *open_fn =
        module != NULL ? (sl_preload_open_fn *)dlsym(module, SL_PRELOAD_OPEN) : NULL;

    if (open_fn == NULL) {
        snprintf(why, cap, "the module cannot be opened: %s", dlerror());
        return -ENOENT;
    }
    return open_fn(&family->host, take, family->call_count, why, cap);
}

/* One rank of a job speaks for all, where the launcher says which this is. */
static bool is_first_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
                                        "SLURM_PROCID", "RANK"};

    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *text = getenv(names[i]);

        if (text != NULL && strcmp(text, "0") != 0)
            return false;
    }
    return true;
}

/* The shim was asked for and can do nothing: the report is not the only place that says so. */
static void warn_without_module(const struct sl_preload_family *family, const char *why)
{
    if (!family->host.report && is_first_rank())
        sl_stderr_line("sluice preload: calls of %s are not taken: %s (docs/preload.md; "
                       "SLUICE_PRELOAD=off ends this line)",
                       family->name, why);
}

void sl_preload_resolve(struct sl_preload_family *family)
{
    void *take[64] = {NULL};
    char why[256] = "";

    pthread_mutex_lock(&resolve_lock);
    if (atomic_load(&family->resolved) != 0) {
        pthread_mutex_unlock(&resolve_lock);
        return;
    }
    enum sl_preload_mode mode = read_mode();

    family->host = (struct sl_preload_host){.abi = SL_PRELOAD_ABI,
                                            .report = mode == SL_PRELOAD_MODE_REPORT,
                                            .counts = family->counts,
                                            .find = find,
                                            .object = find_object,
                                            .counted = counted,
                                            .note = keep_note,
                                            .rank = keep_rank};
    int err = mode != SL_PRELOAD_MODE_OFF && family->call_count <= sizeof(take) / sizeof(take[0])
                  ? open_module(family, take, why, sizeof(why))
                  : 0;

    if (err != 0) {
        memset(take, 0, sizeof(take));
        if (err == -ENOENT)
            warn_without_module(family, why);
        keep_note(&family->host, why);
        if (family->host.report)
            counted();
    }
    for (unsigned i = 0; i < family->entry_count; i++) {
        const struct sl_preload_entry *entry = &family->entries[i];
        void *to = take[entry->call] ?: find(&family->host, entry->name);

        atomic_store_explicit(entry->to, to ?: (void *)missing, memory_order_release);
    }
    atomic_store(&family->resolved, 1);
    pthread_mutex_unlock(&resolve_lock);
}
