/* SPDX-License-Identifier: Apache-2.0 */
/* Finds modules, checks them, and registers their transports. */
#include "core/module.h"

#include "core/err.h"
#include "core/registry.h"
#include "core/transport.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define START "sluice-"
#define END ".so"
#define REFUSED_MAX 16

struct refused {
    char name[48];
    char why[320];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of who loads */
static struct refused refused[REFUSED_MAX];
static _Atomic unsigned refused_count;

static void log_line(enum sl_log_level level, const char *area, const char *line)
{
    sl_log_write(level, area, "%s", line);
}

static int fail_in(const char *file, int code, const char *text)
{
    return sl_fail_in(file, code, "%s", text);
}

static const struct sl_module_host host = {
    .fail_in = fail_in,
    .last_error = sluice_last_error,
    .strerror = sluice_strerror,
    .tame_text = sl_tame_text,
    .assert_failed = sl_assert_failed,
    .log_enabled = sl_log_enabled,
    .log_line = log_line,
    .event_put = sl_event_put,
    .transport_with = sl_transport_with,
};

static int take(const char *path, void *handle)
{
    const struct sl_module *module = dlsym(handle, SL_MODULE_SYMBOL);

    if (module == NULL)
        return sl_fail(-ENOTSUP, "%s is no module of Sluice: it has no symbol " SL_MODULE_SYMBOL,
                       path);
    if (module->abi != SL_TRANSPORT_ABI)
        return sl_fail(-ENOTSUP,
                       "%s was built for version %u of Sluice's transports, and this is version %u",
                       path, module->abi, SL_TRANSPORT_ABI);
    *module->host = &host;
    return sl_transport_register(module->ops);
}

int sl_module_load(const char *path)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);

    if (handle == NULL)
        return sl_fail(-ENOENT, "%s cannot be opened: %s", path, dlerror());
    int err = take(path, handle);

    if (err != 0)
        dlclose(handle);
    return err;
}

/* ---- folders ---- */

static int is_module(const struct dirent *entry)
{
    size_t len = strlen(entry->d_name);

    return len > strlen(START END) && strncmp(entry->d_name, START, strlen(START)) == 0 &&
           strcmp(entry->d_name + len - strlen(END), END) == 0;
}

static void refuse(const char *file)
{
    unsigned count = atomic_load(&refused_count);

    sl_info("core", "%s", sluice_last_error());
    if (count == REFUSED_MAX)
        return;
    snprintf(refused[count].name, sizeof(refused[count].name), "%.*s",
             (int)(strlen(file) - strlen(START END)), file + strlen(START));
    snprintf(refused[count].why, sizeof(refused[count].why), "%s", sluice_last_error());
    atomic_store(&refused_count, count + 1);
}

static unsigned load_folder(const char *dir)
{
    struct dirent **entries;
    unsigned loaded = 0;
    int count = scandir(dir, &entries, is_module, alphasort);

    for (int i = 0; i < count; i++) {
        char path[1024];

        snprintf(path, sizeof(path), "%s/%s", dir, entries[i]->d_name);
        if (sl_module_load(path) == 0)
            loaded++;
        else
            refuse(entries[i]->d_name);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    return loaded;
}

/* The folder of the file that holds this code; false: it is not known. */
static bool own_folder(char *out, size_t cap)
{
    static const char anchor;
    Dl_info info;
    char *slash;

    if (dladdr(&anchor, &info) == 0 || info.dli_fname == NULL)
        return false;
    snprintf(out, cap, "%s", info.dli_fname);
    slash = strrchr(out, '/');
    if (slash == NULL)
        return false;
    *slash = '\0';
    return true;
}

static unsigned load_beside(void)
{
    char own[900], dir[1000];
    const char *last;

    if (!own_folder(own, sizeof(own)))
        return 0;
    snprintf(dir, sizeof(dir), "%s/sluice", own);
    unsigned loaded = load_folder(dir);

    last = strrchr(own, '/');
    if (last != NULL && strcmp(last, "/bin") == 0) {
        snprintf(dir, sizeof(dir), "%s/../lib/sluice", own);
        loaded += load_folder(dir);
    }
    return loaded;
}

unsigned sl_modules_load(const char *dir)
{
    pthread_mutex_lock(&lock);
    unsigned loaded = dir != NULL ? load_folder(dir) : load_beside();

    pthread_mutex_unlock(&lock);
    return loaded;
}

const char *sl_module_refused(unsigned idx, const char **why)
{
    if (idx >= atomic_load(&refused_count))
        return NULL;
    *why = refused[idx].why;
    return refused[idx].name;
}
