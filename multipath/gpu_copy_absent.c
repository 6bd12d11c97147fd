/* SPDX-License-Identifier: Apache-2.0 */
/* In the place of gpu_copy.c where lanes take no GPU memory: mr_reg() refuses it, and the engine
 * copies. */
#include "multipath/gpu_copy.h"

#include "core/err.h"

int sl_mp_gpu_stage(struct sl_mp_iface *iface, struct sl_mp_region *region)
{
    (void)iface, (void)region;
    return sl_fail(-ENOTSUP, "these lanes take no GPU memory");
}

int sl_mp_gpu_check(const struct sl_mem_region *region)
{
    (void)region;
    return sl_fail(-EINVAL, "these lanes take no GPU memory");
}

int sl_mp_gpu_arrived(const struct sl_mp_region *region)
{
    (void)region;
    return 0;
}

int sl_mp_gpu_copy(const struct sl_mp_rx_msg *msg, const uint8_t *bytes, size_t len)
{
    (void)msg, (void)bytes, (void)len;
    return sl_fail(-EIO, "these lanes take no GPU memory");
}

int sl_mp_gpu_progress(struct sl_mp_iface *iface)
{
    (void)iface;
    return 0;
}

bool sl_mp_gpu_busy(const struct sl_mp_iface *iface)
{
    (void)iface;
    return false;
}

void sl_mp_gpu_forget(struct sl_mp_channel *channel)
{
    (void)channel;
}

void sl_mp_gpu_close(struct sl_mp_iface *iface)
{
    (void)iface;
}
