/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a peer's memory by process_vm_readv, where a trial read showed that this is allowed. */
#include "shm/shm.h"
#include "shm/config.h"

#include "core/config.h"
#include "core/log.h"

#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

int shm_read_some(pid_t pid, uint64_t addr, void *dst, size_t len)
{
    while (len > 0) {
        struct iovec local = {dst, len}, remote = {(void *)(uintptr_t)addr, len};
        ssize_t got = process_vm_readv(pid, &local, 1, &remote, 1, 0);

        if (got < 0)
            return -errno;
        if (got == 0)
            return -EFAULT;
        dst = (uint8_t *)dst + got;
        addr += (uint64_t)got;
        len -= (size_t)got;
    }
    return 0;
}

const char *shm_read_refused(const struct sl_config *config)
{
    uint64_t here = 0x51u, there = 0;
    int err;

    if (sl_shm_config(config)->read == SL_OFF)
        return "switched off by SLUICE_SHM_READ";
    err = shm_read_some(getpid(), (uint64_t)(uintptr_t)&here, &there, sizeof(there));
    if (err != 0 || there != here)
        return err == -ENOSYS ? "this kernel has no process_vm_readv"
                              : "process_vm_readv is not allowed here (seccomp?)";
    /* Under Yama's ptrace_scope 1 a process is readable for the process that it names. Naming all
     * is a weakening that a user must have asked for. */
    if (sl_shm_config(config)->read == SL_ON &&
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0) != 0 && errno != EINVAL)
        sl_debug("shm", "shm: PR_SET_PTRACER: %s", strerror(errno));
    return NULL;
}

void shm_read_try(struct shm_ep *ep, uint64_t addr)
{
    struct shm_iface *iface = shm_ep_iface(ep);
    uint64_t word = 0;
    const char *reason;
    int err;

    if (iface->read_reason != NULL)
        return;
    if (ep->peer_pid <= 0) {
        reason = "a peer's process is not visible from here (another pid namespace)";
    } else {
        err = shm_read_some(ep->peer_pid, addr + offsetof(struct shm_page, trial), &word,
                            sizeof(word));
        if (err == 0 && word == ep->peer_page->trial) {
            ep->read_state = 1;
            shm_large_offer(ep);
            return;
        }
        reason = err == -EPERM ? "reading a peer's memory is not permitted (see "
                                 "kernel.yama.ptrace_scope, or set SLUICE_SHM_READ=on)"
                               : "a trial read of a peer's memory failed";
    }
    ep->read_state = -ENOTSUP;
    iface->read_reason = reason;
    iface->base.caps &= ~(uint32_t)SL_CAP_READ;
    if (sl_shm_config(iface->base.worker->config)->read == SL_ON)
        sl_warn("shm", "shm: no direct reads: %s", reason);
    else
        sl_info("shm", "shm: no direct reads: %s", reason);
}

bool shm_still_there(const struct shm_ep *ep)
{
    struct pollfd p[2] = {{.fd = ep->source.fd, .events = POLLRDHUP},
                          {.fd = ep->death.fd, .events = POLLIN}};

    return ep->source.fd >= 0 && poll(p, 2, 0) == 0;
}

int shm_read(struct sl_ep *base, uint64_t addr, void *dst, size_t len, struct sl_req *req)
{
    struct shm_ep *ep = shm_ep_of(base);
    int err;

    if (ep->state != SHM_UP)
        return sl_fail(ep->state == SHM_LOST ? ep->status : -ENOTCONN, "%s cannot be read from: %s",
                       sl_ep_peer_name(base),
                       ep->state == SHM_LOST ? ep->why : "it is not connected yet");
    if (ep->read_state != 1)
        return sl_fail(-ENOTSUP, "direct reads from %s are off: %s", sl_ep_peer_name(base),
                       shm_ep_iface(ep)->read_reason ?: "a trial read failed");
    err = shm_read_some(ep->peer_pid, addr, dst, len);
    if (err == -ESRCH || !shm_still_there(ep))
        return sl_fail(-ECONNRESET, "%s is gone", sl_ep_peer_name(base));
    if (err != 0)
        return sl_fail(err, "reading %zu bytes of %s's memory failed: %s", len,
                       sl_ep_peer_name(base), strerror(-err));
    ep->received += len;
    ep->base.iface->traffic += len;
    req->len = len;
    req->status = 0;
    return 1;
}
