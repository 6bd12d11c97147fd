/* SPDX-License-Identifier: Apache-2.0 */
/* Checks every message and address that another process sends. */
#include "shm/wire.h"

#include "core/err.h"

#include <assert.h>
#include <string.h>

static_assert(sizeof(struct shm_hello) == 56, "padding would leak stack bytes to the peer");
static_assert(sizeof(struct shm_addr) <= SL_ADDR_MAX, "the address must fit struct sl_addr");
static_assert(sizeof(struct shm_key) <= SL_KEY_MAX, "the key must fit struct sl_key");
static_assert(SL_CTRL_MAX <= sizeof(struct shm_refuse),
              "the union's size must cover control messages");

int shm_fail_version(unsigned other)
{
    return sl_fail(-EPROTO,
                   "peers disagree on the shm protocol: this side speaks version %d, the other %u; "
                   "use the same release of Sluice on all ranks",
                   SHM_VERSION, other);
}

static int check_hello(const struct shm_hello *hello)
{
    if (hello->ring_bytes < SHM_RING_MIN || hello->ring_bytes > SHM_RING_MAX ||
        hello->ring_bytes % SL_CACHE_LINE != 0)
        return sl_fail(-EBADMSG, "a shm peer offered a ring of %u bytes", hello->ring_bytes);
    if (hello->cells < SHM_CELLS_MIN || hello->cells > SHM_CELLS_MAX ||
        (hello->cells & (hello->cells - 1)) != 0)
        return sl_fail(-EBADMSG, "a shm peer offered a ring of %u cells", hello->cells);
    return 0;
}

static int check_region(const struct shm_region_msg *region)
{
    if (region->id == 0 || region->len == 0 || region->len > INT64_MAX ||
        region->fd_off > INT64_MAX - region->len || region->fd_off % 4096 != 0)
        return sl_fail(-EBADMSG, "a shm peer announced a region of impossible place or size");
    return 0;
}

static int check_body(const struct shm_msg *msg, size_t body)
{
    static const struct {
        size_t min, max;
    } sizes[SHM_MSG_TYPE_COUNT] = {
        [SHM_HELLO] = {sizeof(struct shm_hello), sizeof(struct shm_hello)},
        [SHM_WELCOME] = {sizeof(struct shm_hello), sizeof(struct shm_hello)},
        [SHM_REFUSE] = {offsetof(struct shm_refuse, text), sizeof(struct shm_refuse)},
        [SHM_CTRL] = {0, SL_CTRL_MAX},
        [SHM_REGION] = {sizeof(struct shm_region_msg), sizeof(struct shm_region_msg)},
        [SHM_DROP] = {sizeof(uint64_t), sizeof(uint64_t)},
        [SHM_BYE] = {0, 0},
    };
    unsigned type = msg->head.type;

    if (type == 0 || type >= SHM_MSG_TYPE_COUNT || body < sizes[type].min || body > sizes[type].max)
        return sl_fail(-EBADMSG, "a shm peer sent a message of type %u with %zu bytes", type, body);
    if (type == SHM_HELLO || type == SHM_WELCOME)
        return check_hello(&msg->hello);
    if (type == SHM_REGION)
        return check_region(&msg->region);
    return 0;
}

int shm_msg_parse(const void *bytes, size_t len, struct shm_msg *out, size_t *body)
{
    size_t rest = len - sizeof(out->head);
    int err;

    if (len < sizeof(out->head) || len > sizeof(*out))
        return sl_fail(-EBADMSG, "a shm peer sent a message of %zu bytes", len);
    memset(out, 0, sizeof(*out));
    memcpy(out, bytes, len);
    if (out->head.magic != SHM_MAGIC)
        return sl_fail(-EBADMSG, "a connection spoke something else than this protocol");
    if (out->head.version != SHM_VERSION)
        return shm_fail_version(out->head.version);
    err = check_body(out, rest);
    if (err != 0)
        return err;
    if (out->head.type == SHM_REFUSE) {
        out->refuse.text[SHM_TEXT_MAX - 1] = '\0';
        if (out->refuse.code >= 0 || out->refuse.code < -4095)
            out->refuse.code = -ECONNREFUSED;
    }
    *body = rest;
    return 0;
}

int shm_addr_parse(const struct sl_addr *addr, struct shm_addr *out)
{
    struct shm_addr got;

    if (addr->len < offsetof(struct shm_addr, name) || addr->len > sizeof(got))
        return sl_fail(-EINVAL, "an address of %u bytes is not one of shm", addr->len);
    memset(&got, 0, sizeof(got));
    memcpy(&got, addr->bytes, addr->len);
    if (got.magic != SHM_MAGIC)
        return sl_fail(-EINVAL, "the address is not one of shm");
    if (got.version != SHM_VERSION)
        return shm_fail_version(got.version);
    if (got.name_len == 0 || got.name_len != addr->len - offsetof(struct shm_addr, name))
        return sl_fail(-EINVAL, "the shm address is cut short");
    *out = got;
    return 0;
}

void shm_addr_pack(const struct shm_addr *addr, struct sl_addr *out)
{
    sl_assert(addr->name_len <= sizeof(addr->name));
    memset(out, 0, sizeof(*out));
    out->len = (uint16_t)(offsetof(struct shm_addr, name) + addr->name_len);
    memcpy(out->bytes, addr, out->len);
}

int shm_key_parse(const struct sl_key *key, struct shm_key *out)
{
    struct shm_key got;

    if (key->len != sizeof(got))
        return sl_fail(-EINVAL, "a key of %u bytes is not one of shm", key->len);
    memcpy(&got, key->bytes, sizeof(got));
    if (got.id == 0 || got.len == 0 || got.len > INT64_MAX)
        return sl_fail(-EINVAL, "a key names a region of impossible number or size");
    *out = got;
    return 0;
}

void shm_key_pack(const struct shm_key *key, struct sl_key *out)
{
    memset(out, 0, sizeof(*out));
    out->len = sizeof(*key);
    memcpy(out->bytes, key, sizeof(*key));
}
