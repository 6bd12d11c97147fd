/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libnvidia-ml.so.1 for tests: two GPUs, which say what the file that FAKE_NVML names says, read
 * at each call, a line "WORD NUMBER" each.
 *
 *     hang 1, crash 1, absent 1    the library
 *     lost I, ecc N, wait 1, failed 1, reasons BITS, links BITS, repairs N    GPU 1, or all
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct nvml_device {
    unsigned index;
};

static struct nvml_device devices[2] = {{0}, {1}};

static unsigned long long said(const char *word, unsigned long long standard)
{
    const char *path = getenv("FAKE_NVML");
    FILE *file = path == NULL ? NULL : fopen(path, "r");
    unsigned long long value;
    char name[32];

    while (file != NULL && fscanf(file, "%31s %llu", name, &value) == 2)
        if (strcmp(name, word) == 0)
            standard = value;
    if (file != NULL)
        fclose(file);
    return standard;
}

static int answer(const struct nvml_device *device)
{
    while (said("hang", 0) != 0)
        pause();
    if (said("crash", 0) != 0)
        raise(SIGKILL);
    return device != NULL && device->index + 1 == said("lost", 0) ? 15 : 0;
}

#define EXPORT __attribute__((visibility("default")))

EXPORT int nvmlInit_v2(void);
EXPORT const char *nvmlErrorString(int code);
EXPORT int nvmlDeviceGetCount_v2(unsigned *out);
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct nvml_device **out);
EXPORT int nvmlDeviceGetPciInfo_v3(struct nvml_device *device, void *out);
EXPORT int nvmlDeviceGetTotalEccErrors(struct nvml_device *device, int type, int counter,
                                       unsigned long long *out);
EXPORT int nvmlDeviceGetRemappedRows(struct nvml_device *device, unsigned *corrected,
                                     unsigned *uncorrected, unsigned *waits, unsigned *failed);
EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(struct nvml_device *device,
                                                     unsigned long long *out);
EXPORT int nvmlDeviceGetTemperature(struct nvml_device *device, int sensor, unsigned *out);
EXPORT int nvmlDeviceGetUtilizationRates(struct nvml_device *device, unsigned out[2]);
EXPORT int nvmlDeviceGetNvLinkState(struct nvml_device *device, unsigned link, int *out);
EXPORT int nvmlDeviceGetNvLinkErrorCounter(struct nvml_device *device, unsigned link, int counter,
                                           unsigned long long *out);

int nvmlInit_v2(void)
{
    return said("absent", 0) != 0 ? 9 : answer(NULL);
}

const char *nvmlErrorString(int code)
{
    return code == 15 ? "GPU is lost" : code == 9 ? "Driver Not Loaded" : "Unknown Error";
}

int nvmlDeviceGetCount_v2(unsigned *out)
{
    *out = 2;
    return answer(NULL);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct nvml_device **out)
{
    *out = &devices[index];
    return answer(&devices[index]);
}

int nvmlDeviceGetPciInfo_v3(struct nvml_device *device, void *out)
{
    struct {
        char old_name[16];
        unsigned domain, bus, device, id, subsystem_id;
        char name[32];
    } pci = {.bus = 0x9b + device->index};

    memcpy(out, &pci, sizeof(pci));
    return answer(device);
}

int nvmlDeviceGetTotalEccErrors(struct nvml_device *device, int type, int counter,
                                unsigned long long *out)
{
    *out = type == 1 && counter == 0 && device->index == 0 ? said("ecc", 0) : 0;
    return answer(device);
}

int nvmlDeviceGetRemappedRows(struct nvml_device *device, unsigned *corrected,
                              unsigned *uncorrected, unsigned *waits, unsigned *failed)
{
    *corrected = 1;
    *uncorrected = 2;
    *waits = device->index == 0 ? (unsigned)said("wait", 0) : 0;
    *failed = device->index == 0 ? (unsigned)said("failed", 0) : 0;
    return answer(device);
}

/* The name that drivers before 535 have. */
int nvmlDeviceGetCurrentClocksThrottleReasons(struct nvml_device *device, unsigned long long *out)
{
    *out = device->index == 0 ? said("reasons", 0) : 0;
    return answer(device);
}

int nvmlDeviceGetTemperature(struct nvml_device *device, int sensor, unsigned *out)
{
    *out = 40 + (unsigned)sensor;
    return answer(device);
}

int nvmlDeviceGetUtilizationRates(struct nvml_device *device, unsigned out[2])
{
    out[0] = out[1] = device->index == 0 ? 90 : 0;
    return answer(device);
}

int nvmlDeviceGetNvLinkState(struct nvml_device *device, unsigned link, int *out)
{
    if (link >= 18)
        return 2;
    *out = said("links", 0x3ffff) >> link & 1;
    return answer(device);
}

int nvmlDeviceGetNvLinkErrorCounter(struct nvml_device *device, unsigned link, int counter,
                                    unsigned long long *out)
{
    *out = counter == 1 && link == 0 ? said("repairs", 0) : 0;
    return answer(device);
}
