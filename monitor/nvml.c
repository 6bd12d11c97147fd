/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/nvml.h"

#include "core/err.h"
#include "monitor/gpu.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- NVML's interface, as far as it is used (NVML API Reference Manual) ---- */

typedef struct nvml_device *nvml_device;

struct nvml_pci {
    char old_name[16];
    unsigned domain, bus, device, id, subsystem_id;
    char name[32];
};

struct nvml_use {
    unsigned gpu, memory;
};

enum { NVML_SUCCESS = 0, NVML_GPU_IS_LOST = 15, NVML_RESET_REQUIRED = 16 };
enum { NVML_UNCORRECTED = 1, NVML_VOLATILE = 0, NVML_TEMPERATURE_GPU = 0 };
enum { NVML_REPLAY = 0, NVML_RECOVERY = 1 };

/* X(field, name, another name that older or newer drivers have, must it be there, arguments) */
#define CALLS(X)                                                                                   \
    X(init, "nvmlInit_v2", "nvmlInit", true, (void))                                               \
    X(error, "nvmlErrorString", "", true, (int))                                                   \
    X(count, "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount", true, (unsigned *))                    \
    X(device, "nvmlDeviceGetHandleByIndex_v2", "", true, (unsigned, nvml_device *))                \
    X(pci, "nvmlDeviceGetPciInfo_v3", "", true, (nvml_device, struct nvml_pci *))                  \
    X(ecc, "nvmlDeviceGetTotalEccErrors", "", false,                                               \
      (nvml_device, int, int, unsigned long long *))                                               \
    X(rows, "nvmlDeviceGetRemappedRows", "", false,                                                \
      (nvml_device, unsigned *, unsigned *, unsigned *, unsigned *))                               \
    X(reasons, "nvmlDeviceGetCurrentClocksEventReasons",                                           \
      "nvmlDeviceGetCurrentClocksThrottleReasons", false, (nvml_device, unsigned long long *))     \
    X(temperature, "nvmlDeviceGetTemperature", "", false, (nvml_device, int, unsigned *))          \
    X(use, "nvmlDeviceGetUtilizationRates", "", false, (nvml_device, struct nvml_use *))           \
    X(link, "nvmlDeviceGetNvLinkState", "", false, (nvml_device, unsigned, int *))                 \
    X(link_errors, "nvmlDeviceGetNvLinkErrorCounter", "", false,                                   \
      (nvml_device, unsigned, int, unsigned long long *))

struct calls {
#define X(field, name, other, must, arguments) int(*field) arguments;
    CALLS(X)
#undef X
};

struct child {
    struct calls calls;
    int fd;
    char names[SL_MON_GPUS_MAX][32]; /* a GPU that is lost does not say its own */
};

/* nvmlErrorString() gives a text; the table has one type of result. */
static const char *error_text(const struct child *child, int code)
{
    const char *(*text)(int);

    memcpy(&text, &child->calls.error, sizeof(text));
    return text(code);
}

static bool put(const struct child *child, struct sl_mon_gpu_record *record)
{
    ssize_t len;

    record->magic = SL_MON_GPU_MAGIC;
    do
        len = write(child->fd, record, sizeof(*record));
    while (len < 0 && errno == EINTR);
    return len == (ssize_t)sizeof(*record);
}

__attribute__((format(printf, 2, 3))) static int absent(const struct child *child, const char *fmt,
                                                        ...)
{
    struct sl_mon_gpu_record record = {.type = SL_MON_GPU_ABSENT};
    va_list args;

    va_start(args, fmt);
    vsnprintf(record.text, sizeof(record.text), fmt, args);
    va_end(args);
    (void)put(child, &record);
    return 1;
}

/* NULL, or the name of what is missing. */
static const char *load(void *library, struct calls *out)
{
    void *symbol;

#define X(field, name, other, must, arguments)                                                     \
    symbol = dlsym(library, name);                                                                 \
    if (symbol == NULL && (other)[0] != '\0')                                                      \
        symbol = dlsym(library, other);                                                            \
    memcpy(&out->field, &symbol, sizeof(symbol));                                                  \
    if (symbol == NULL && (must))                                                                  \
        return name;
    CALLS(X)
#undef X
    return NULL;
}

/* ---- one GPU ---- */

/* Did a call succeed? One that says that the GPU is lost is noted. */
static bool good(const struct child *child, int code, struct sl_mon_gpu_record *record)
{
    if (code == NVML_GPU_IS_LOST || code == NVML_RESET_REQUIRED) {
        record->is_lost = 1;
        snprintf(record->text, sizeof(record->text), "NVML: %.100s", error_text(child, code));
    }
    return code == NVML_SUCCESS;
}

static void read_memory(const struct child *child, nvml_device device,
                        struct sl_mon_gpu_record *record)
{
    unsigned corrected, uncorrected, waits, failed;
    unsigned long long errors;

    if (child->calls.ecc != NULL &&
        good(child, child->calls.ecc(device, NVML_UNCORRECTED, NVML_VOLATILE, &errors), record)) {
        record->ecc = errors;
        record->has |= SL_MON_GPU_HAS_ECC;
    }
    if (child->calls.rows != NULL &&
        good(child, child->calls.rows(device, &corrected, &uncorrected, &waits, &failed), record)) {
        record->rows = corrected + uncorrected;
        record->rows_wait = waits != 0;
        record->rows_failed = failed != 0;
        record->has |= SL_MON_GPU_HAS_ROWS;
    }
}

static void read_state(const struct child *child, nvml_device device,
                       struct sl_mon_gpu_record *record)
{
    unsigned long long reasons;
    unsigned temperature;
    struct nvml_use use;

    if (child->calls.reasons != NULL &&
        good(child, child->calls.reasons(device, &reasons), record)) {
        record->reasons = reasons;
        record->has |= SL_MON_GPU_HAS_REASONS;
    }
    if (child->calls.temperature != NULL &&
        good(child, child->calls.temperature(device, NVML_TEMPERATURE_GPU, &temperature), record)) {
        record->temperature = (int32_t)temperature;
        record->has |= SL_MON_GPU_HAS_TEMPERATURE;
    }
    if (child->calls.use != NULL && good(child, child->calls.use(device, &use), record)) {
        record->use = use.gpu > 100 ? 100 : (uint8_t)use.gpu;
        record->has |= SL_MON_GPU_HAS_USE;
    }
}

static void read_links(const struct child *child, nvml_device device,
                       struct sl_mon_gpu_record *record)
{
    for (unsigned i = 0; child->calls.link != NULL && i < SL_MON_GPU_LINKS_MAX; i++) {
        unsigned long long count;
        int state;

        if (!good(child, child->calls.link(device, i, &state), record))
            return; /* it has no more of them */
        record->has |= SL_MON_GPU_HAS_LINKS;
        if (state == 0)
            continue;
        record->links |= 1u << i;
        if (child->calls.link_errors == NULL)
            continue;
        if (good(child, child->calls.link_errors(device, i, NVML_REPLAY, &count), record)) {
            record->replays += count;
            record->has |= SL_MON_GPU_HAS_LINK_ERRORS;
        }
        if (good(child, child->calls.link_errors(device, i, NVML_RECOVERY, &count), record))
            record->repairs += count;
    }
}

static bool read_gpu(struct child *child, unsigned index)
{
    struct sl_mon_gpu_record record = {.type = SL_MON_GPU_DEVICE, .index = index};
    nvml_device device;
    struct nvml_pci pci;

    memset(&pci, 0, sizeof(pci));
    if (good(child, child->calls.device(index, &device), &record)) {
        if (good(child, child->calls.pci(device, &pci), &record))
            snprintf(child->names[index], sizeof(child->names[index]), "%04x:%02x:%02x.0",
                     pci.domain, pci.bus, pci.device);
        read_memory(child, device, &record);
        read_state(child, device, &record);
        read_links(child, device, &record);
    }
    memcpy(record.name, child->names[index], sizeof(record.name));
    return record.name[0] == '\0' || put(child, &record);
}

int sl_mon_nvml_run(const char *library, int fd, unsigned period_ms)
{
    const struct timespec period = {.tv_sec = period_ms / 1000,
                                    .tv_nsec = period_ms % 1000 * 1000000L};
    struct child child = {.fd = fd};
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    const char *missing;
    unsigned count;
    int code;

    if (handle == NULL)
        return absent(&child, "%.120s", dlerror());
    missing = load(handle, &child.calls);
    if (missing != NULL)
        return absent(&child, "%.60s has no %s", library, missing);
    code = child.calls.init();
    if (code != NVML_SUCCESS)
        return absent(&child, "NVML does not begin: %.90s", error_text(&child, code));
    for (;;) {
        struct sl_mon_gpu_record record = {.type = SL_MON_GPU_ROUND};

        code = child.calls.count(&count);
        if (code != NVML_SUCCESS)
            return absent(&child, "NVML counts no GPUs: %.90s", error_text(&child, code));
        if (count > SL_MON_GPUS_MAX)
            count = SL_MON_GPUS_MAX;
        for (unsigned i = 0; i < count; i++)
            if (!read_gpu(&child, i))
                return 0;
        record.index = count;
        if (!put(&child, &record))
            return 0;
        nanosleep(&period, NULL);
    }
}
