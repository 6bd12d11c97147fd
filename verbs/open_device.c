/* SPDX-License-Identifier: Apache-2.0 */
/* The devices that this process has open. */
#include "verbs/open_device.h"

#include "core/err.h"
#include "core/fork.h"
#include "verbs/queue_pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    pthread_mutex_t lock;
    struct sl_node devices;
    unsigned keeps;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER, .devices = {&process.devices, &process.devices}};

/* In a child: its parent's, maybe as another thread was changing them. Leak checkers see them
 * here. */
static struct sl_node *parents __attribute__((used));

static void forget_parents(void)
{
    parents = process.devices.next;
    sl_list_init(&process.devices);
    pthread_mutex_init(&process.lock, NULL);
    process.keeps = 0;
}

static void register_child(void)
{
    sl_fork_on_child(forget_parents);
}

static void process_lock(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, register_child);
    pthread_mutex_lock(&process.lock);
}

/* ---- opening ---- */

static struct ibv_context *context_open(const struct sl_ibv *ibv, const char *name,
                                        struct ibv_device *given)
{
    int count = 0, i = 0, err;
    struct ibv_device **list;
    struct ibv_context *context = NULL;

    if (given != NULL)
        return (ibv->ibv_open_device)(given);
    list = (ibv->ibv_get_device_list)(&count);
    if (list == NULL)
        return NULL;
    while (i < count && strcmp((ibv->ibv_get_device_name)(list[i]), name) != 0)
        i++;
    errno = ENODEV; /* unless opening says another */
    if (i < count)
        context = (ibv->ibv_open_device)(list[i]);
    err = errno;
    (ibv->ibv_free_device_list)(list);
    errno = err;
    return context;
}

static int device_open(const struct sl_ibv *ibv, const char *name, struct ibv_device *given,
                       struct sl_verbs_device **out)
{
    const struct sl_mlx5dv *mlx5dv = sl_mlx5dv_get();
    struct sl_verbs_device *device = calloc(1, sizeof(*device));
    int err;

    if (device == NULL)
        return sl_fail(-ENOMEM, "no memory for an RDMA device");
    errno = 0;
    device->context = context_open(ibv, name, given);
    if (device->context == NULL) {
        err = errno != 0 ? -errno : -ENODEV;
        free(device);
        return sl_fail(err, "%s cannot be opened: %s", name, sluice_strerror(err));
    }
    device->ibv = ibv;
    snprintf(device->name, sizeof(device->name), "%s", name);
    device->is_mlx5 = mlx5dv != NULL && mlx5dv->mlx5dv_is_supported(device->context->device);
    if (device->is_mlx5)
        device->lag_ports = sl_verbs_lag_ports(mlx5dv, device->context);
    pthread_mutex_init(&device->memory_lock, NULL);
    pthread_mutex_init(&device->event_lock, NULL);
    sl_list_init(&device->listeners);
    sl_verbs_memory_init(device);
    *out = device;
    return 0;
}

/* With the lock. */
static void device_close(struct sl_verbs_device *device)
{
    sl_list_remove(&device->link);
    sl_verbs_memory_fini(device);
    if (device->pd != NULL)
        (device->ibv->ibv_dealloc_pd)(device->pd);
    (device->ibv->ibv_close_device)(device->context);
    pthread_mutex_destroy(&device->memory_lock);
    pthread_mutex_destroy(&device->event_lock);
    free(device);
}

/* One that was taken out and put back has a context that stays dead, whether it has said so or
 * not. */
bool sl_verbs_device_is_alive(struct sl_verbs_device *device)
{
    struct ibv_device_attr attr;

    if (!atomic_load(&device->is_dead) &&
        (device->ibv->ibv_query_device)(device->context, &attr) != 0)
        atomic_store(&device->is_dead, true);
    return !atomic_load(&device->is_dead);
}

/* With the lock. */
static struct sl_verbs_device *find(const struct sl_ibv *ibv, const char *name)
{
    sl_list_foreach(&process.devices, node)
    {
        struct sl_verbs_device *device = sl_container_of(node, struct sl_verbs_device, link);

        if (device->ibv == ibv && strcmp(device->name, name) == 0 &&
            sl_verbs_device_is_alive(device))
            return device;
    }
    return NULL;
}

int sl_verbs_device_get(const struct sl_ibv *ibv, const char *name, struct ibv_device *given,
                        struct sl_verbs_device **out)
{
    struct sl_verbs_device *device;
    int err = 0;

    process_lock();
    device = find(ibv, name);
    if (device == NULL) {
        err = device_open(ibv, name, given, &device);
        if (device != NULL)
            sl_list_push_back(&process.devices, &device->link);
    }
    if (device != NULL) {
        device->refs++;
        *out = device;
    }
    pthread_mutex_unlock(&process.lock);
    return err;
}

void sl_verbs_device_put(struct sl_verbs_device *device)
{
    if (device == NULL)
        return;
    pthread_mutex_lock(&process.lock);
    if (--device->refs == 0 && process.keeps == 0)
        device_close(device);
    pthread_mutex_unlock(&process.lock);
}

void sl_verbs_devices_keep(void)
{
    process_lock();
    process.keeps++;
    pthread_mutex_unlock(&process.lock);
}

void sl_verbs_devices_unkeep(void)
{
    pthread_mutex_lock(&process.lock);
    process.keeps--;
    sl_list_foreach(&process.devices, node)
    {
        struct sl_verbs_device *device = sl_container_of(node, struct sl_verbs_device, link);

        if (device->refs == 0 && process.keeps == 0)
            device_close(device);
    }
    pthread_mutex_unlock(&process.lock);
}
