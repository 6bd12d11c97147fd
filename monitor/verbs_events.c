/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/verbs_events.h"

#include "core/err.h"
#include "monitor/async.h"

#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEVICES_MAX 64
#define SCAN_MS 5000 /* between looks for new devices; also how often it says that it lives */

#define CALLS(X)                                                                                   \
    X(struct ibv_device **, get_device_list, (int *))                                              \
    X(void, free_device_list, (struct ibv_device **))                                              \
    X(const char *, get_device_name, (struct ibv_device *))                                        \
    X(struct ibv_context *, open_device, (struct ibv_device *))                                    \
    X(int, close_device, (struct ibv_context *))                                                   \
    X(int, get_async_event, (struct ibv_context *, struct ibv_async_event *))                      \
    X(void, ack_async_event, (struct ibv_async_event *))

struct calls {
#define X(result, name, arguments) result(*name) arguments;
    CALLS(X)
#undef X
};

struct device {
    struct ibv_context *context;
    char name[64], pci[16];
};

struct process {
    struct calls calls;
    int fd;
    bool only_hardware;
    unsigned count;
    struct device devices[DEVICES_MAX];
};

static bool put(const struct process *process, struct sl_mon_async_record *record)
{
    ssize_t len;

    record->magic = SL_MON_ASYNC_MAGIC;
    do
        len = write(process->fd, record, sizeof(*record));
    while (len < 0 && errno == EINTR);
    return len == (ssize_t)sizeof(*record);
}

static int absent(const struct process *process, const char *text)
{
    struct sl_mon_async_record record = {.type = SL_MON_ASYNC_ABSENT};

    snprintf(record.text, sizeof(record.text), "%s", text);
    (void)put(process, &record);
    return 1;
}

/* NULL, or the name of what is missing. */
static const char *load(void *library, struct calls *out)
{
    void *symbol;

#define X(result, name, arguments)                                                                 \
    symbol = dlsym(library, "ibv_" #name);                                                         \
    if (symbol == NULL)                                                                            \
        return "ibv_" #name;                                                                       \
    memcpy(&out->name, &symbol, sizeof(symbol));
    CALLS(X)
#undef X
    return NULL;
}

/* The PCI device below it; false: it is one in software. */
static bool find_pci(const char *name, char *out, size_t cap)
{
    char path[128], target[PATH_MAX];
    const char *slash;
    ssize_t len;

    out[0] = '\0';
    snprintf(path, sizeof(path), "/sys/class/infiniband/%.64s/device", name);
    len = readlink(path, target, sizeof(target) - 1);
    if (len <= 0)
        return false;
    target[len] = '\0';
    slash = strrchr(target, '/');
    snprintf(out, cap, "%s", slash != NULL ? slash + 1 : target);
    return true;
}

static bool is_open(const struct process *process, const char *name)
{
    for (unsigned i = 0; i < process->count; i++)
        if (strcmp(process->devices[i].name, name) == 0)
            return true;
    return false;
}

static bool device_open(struct process *process, struct ibv_device *at)
{
    struct sl_mon_async_record record = {.type = SL_MON_ASYNC_OPENED};
    struct device *device = &process->devices[process->count];
    const char *name = process->calls.get_device_name(at);
    bool is_hardware;

    if (name == NULL || strlen(name) >= sizeof(device->name) || is_open(process, name) ||
        process->count == DEVICES_MAX)
        return true;
    is_hardware = find_pci(name, device->pci, sizeof(device->pci));
    if (!is_hardware && process->only_hardware)
        return true;
    device->context = process->calls.open_device(at);
    if (device->context == NULL)
        return true; /* the next look may find it better */
    snprintf(device->name, sizeof(device->name), "%s", name);
    process->count++;
    memcpy(record.device, device->name, sizeof(record.device));
    memcpy(record.pci, device->pci, sizeof(record.pci));
    return put(process, &record);
}

static bool scan(struct process *process)
{
    struct sl_mon_async_record alive = {.type = SL_MON_ASYNC_ALIVE};
    int count = 0;
    struct ibv_device **list = process->calls.get_device_list(&count);
    bool goes_on = true;

    for (int i = 0; list != NULL && i < count && goes_on; i++)
        goes_on = device_open(process, list[i]);
    if (list != NULL)
        process->calls.free_device_list(list);
    return goes_on && put(process, &alive);
}

/* False: nobody reads any more. */
static bool take_event(struct process *process, unsigned i)
{
    struct device *device = &process->devices[i];
    struct sl_mon_async_record record = {.type = SL_MON_ASYNC_EVENT};
    struct ibv_async_event event;

    if (process->calls.get_async_event(device->context, &event) != 0) {
        (void)process->calls.close_device(device->context);
        *device = process->devices[--process->count];
        return true;
    }
    record.event = (uint32_t)event.event_type;
    switch (event.event_type) {
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_GID_CHANGE: record.port = (uint32_t)event.element.port_num; break;
    default: break;
    }
    process->calls.ack_async_event(&event);
    memcpy(record.device, device->name, sizeof(record.device));
    memcpy(record.pci, device->pci, sizeof(record.pci));
    if (!put(process, &record))
        return false;
    if (record.event == SL_MON_ASYNC_DEVICE_FATAL) { /* else it could not be removed */
        (void)process->calls.close_device(device->context);
        *device = process->devices[--process->count];
    }
    return true;
}

static bool wait_for_events(struct process *process)
{
    struct pollfd fds[DEVICES_MAX + 1];
    unsigned count = process->count;

    for (unsigned i = 0; i < count; i++)
        fds[i] = (struct pollfd){.fd = process->devices[i].context->async_fd, .events = POLLIN};
    fds[count] = (struct pollfd){.fd = process->fd}; /* who reads has gone */
    if (poll(fds, count + 1, SCAN_MS) <= 0)
        return scan(process);
    if (fds[count].revents != 0)
        return false;
    /* From the end, as one that is closed has the last in its place. */
    for (unsigned i = count; i-- > 0;)
        if (fds[i].revents != 0 && !take_event(process, i))
            return false;
    return true;
}

int sl_mon_verbs_events_run(int fd, bool only_hardware)
{
    static struct process process;
    void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    const char *missing;

    process.fd = fd;
    process.only_hardware = only_hardware;
    if (library == NULL)
        return absent(&process, "libibverbs.so.1 is not installed (libibverbs1)");
    missing = load(library, &process.calls);
    if (missing != NULL)
        return absent(&process, missing);
    if (!scan(&process))
        return 0;
    while (wait_for_events(&process))
        ;
    return 0;
}
