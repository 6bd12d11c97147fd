/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State as bytes: a head of 40 bytes, then for each part one of 32 bytes and its data, with zeros
 * up to 8 bytes. A checksum over everything tells damage, not forgery; lengths are checked anyway.
 */
#include "compress/state.h"

#include "core/err.h"

#include <string.h>

#define MAGIC 0x53534c53u /* "SLSS" */
#define VERSION 1u

struct head {
    uint32_t magic, version;
    uint64_t len; /* of all bytes */
    uint64_t checksum;
    uint64_t step;
    uint32_t ranks, parts;
};

struct part_head {
    uint64_t id, first, len;
    uint32_t kind, zero;
};

_Static_assert(sizeof(struct head) == 40 && sizeof(struct part_head) == 32, "layout of files");

/* One part among the bytes. */
struct saved {
    struct part_head head;
    const uint8_t *data;
};

/* FNV-1a over words of 64 bits (G. Fowler, L. C. Noll, K.-P. Vo), the checksum's own place left
 * out. */
static uint64_t checksum_of(const uint8_t *bytes, size_t len)
{
    uint64_t sum = 0xcbf29ce484222325, word;

    for (size_t i = 0; i < len; i += sizeof(word)) {
        memcpy(&word, bytes + i, sizeof(word));
        if (i == offsetof(struct head, checksum))
            word = 0;
        sum = (sum ^ word) * 0x100000001b3;
        sum ^= sum >> 29; /* high bits of a word would not reach low ones */
    }
    return sum;
}

static size_t padded(size_t len)
{
    return (len + 7) & ~(size_t)7;
}

static int is_residual(uint32_t kind)
{
    return kind == SL_STATE_RESIDUAL || kind == SL_STATE_SHARD_RESIDUAL;
}

static const char *name_of(uint32_t kind)
{
    static const char *const names[] = {"?", "residual", "residual of a shard", "threshold",
                                        "factor"};

    return names[kind < SL_ARRAY_LEN(names) ? kind : 0];
}

size_t sl_state_size(const struct sl_state_part *parts, size_t count)
{
    size_t len = sizeof(struct head);

    for (size_t i = 0; i < count; i++)
        len += sizeof(struct part_head) + padded(parts[i].len);
    return len;
}

void sl_state_save(const struct sl_state_part *parts, size_t count, uint32_t ranks, uint64_t step,
                   void *out)
{
    struct head head = {.magic = MAGIC,
                        .version = VERSION,
                        .len = sl_state_size(parts, count),
                        .step = step,
                        .ranks = ranks,
                        .parts = (uint32_t)count};
    uint8_t *at = (uint8_t *)out + sizeof(head);

    for (size_t i = 0; i < count; i++) {
        struct part_head part = {
            .id = parts[i].id, .first = parts[i].first, .len = parts[i].len, .kind = parts[i].kind};

        memcpy(at, &part, sizeof(part));
        at += sizeof(part);
        memcpy(at, parts[i].data, parts[i].len);
        memset(at + parts[i].len, 0, padded(parts[i].len) - parts[i].len);
        at += padded(parts[i].len);
    }
    memcpy(out, &head, sizeof(head));
    head.checksum = checksum_of(out, head.len);
    memcpy(out, &head, sizeof(head));
}

static int read_head(const void *in, size_t len, struct head *head)
{
    if (len < sizeof(*head) || len % 8 != 0)
        return sl_fail(-EBADMSG, "saved state of %zu bytes is not whole", len);
    memcpy(head, in, sizeof(*head));
    if (head->magic != MAGIC)
        return sl_fail(-EBADMSG, "bytes that begin with 0x%x are no saved state", head->magic);
    if (head->version != VERSION)
        return sl_fail(-EBADMSG, "saved state has version %u, and this is version %u",
                       head->version, VERSION);
    if (head->len != len)
        return sl_fail(-EBADMSG, "saved state of %llu bytes came as %zu",
                       (unsigned long long)head->len, len);
    if (checksum_of(in, len) != head->checksum)
        return sl_fail(-EBADMSG, "saved state is damaged: its checksum is another one");
    return 0;
}

/* The part at *at, which moves past it. What is left is a multiple of 8. */
static int next_part(const uint8_t **at, const uint8_t *end, struct saved *saved)
{
    size_t left = (size_t)(end - *at);

    if (left < sizeof(saved->head))
        return sl_fail(-EBADMSG, "saved state ends before its last part");
    memcpy(&saved->head, *at, sizeof(saved->head));
    saved->data = *at + sizeof(saved->head);
    left -= sizeof(saved->head);
    if (saved->head.len > left || saved->head.len % 4 != 0)
        return sl_fail(-EBADMSG, "a part of saved state has %llu bytes where %zu are left",
                       (unsigned long long)saved->head.len, left);
    if (saved->head.first > UINT64_MAX - saved->head.len)
        return sl_fail(-EBADMSG, "a part of saved state lies past all elements");
    *at = saved->data + padded(saved->head.len);
    return 0;
}

/* Bytes that a part and a saved one share; *to and *from: where they lie in each. */
static size_t shared(const struct sl_state_part *part, const struct saved *saved, size_t *to,
                     size_t *from)
{
    uint64_t begin, end, part_end = part->first + part->len / 4;
    uint64_t saved_end = saved->head.first + saved->head.len / 4;

    if (part->kind != saved->head.kind || part->id != saved->head.id)
        return 0;
    *to = *from = 0;
    if (!is_residual(part->kind))
        return part->len == saved->head.len ? part->len : 0;
    begin = part->first > saved->head.first ? part->first : saved->head.first;
    end = part_end < saved_end ? part_end : saved_end;
    if (begin >= end)
        return 0;
    *to = (size_t)(begin - part->first) * 4;
    *from = (size_t)(begin - saved->head.first) * 4;
    return (size_t)(end - begin) * 4;
}

/* Whether the shards of so many ranks are those of the bytes. */
static int is_dropped(uint32_t kind, const struct head *head, uint32_t ranks)
{
    return kind == SL_STATE_SHARD_RESIDUAL && head->ranks != ranks;
}

/* Each part has all its bytes once. */
static int check_parts(const struct sl_state_part *parts, size_t count, uint32_t ranks,
                       const struct head *head, const uint8_t *in)
{
    size_t to, from;

    for (size_t i = 0; i < count; i++) {
        const uint8_t *at = in + sizeof(*head), *end = in + head->len;
        struct saved saved;
        size_t found = 0;

        for (uint32_t j = 0; j < head->parts; j++) {
            int err = next_part(&at, end, &saved);

            if (err != 0)
                return err;
            found += shared(&parts[i], &saved, &to, &from);
        }
        if (found != parts[i].len && !is_dropped(parts[i].kind, head, ranks))
            return sl_fail(-EBADMSG, "saved state has %zu of the %zu bytes of the %s with id %llu",
                           found, parts[i].len, name_of(parts[i].kind),
                           (unsigned long long)parts[i].id);
    }
    return 0;
}

/* Whether elements of a saved part are saved once more after it: then, of some part, bytes could be
 * as many as they should without being all. */
static int is_saved_again(const struct saved *saved, const uint8_t *at, const uint8_t *end,
                          uint32_t left)
{
    const struct sl_state_part part = {.id = saved->head.id,
                                       .first = saved->head.first,
                                       .kind = saved->head.kind,
                                       .len = (size_t)saved->head.len};
    struct saved other;
    size_t to, from;

    while (left-- > 0 && next_part(&at, end, &other) == 0)
        if (shared(&part, &other, &to, &from) > 0)
            return 1;
    return 0;
}

/* Each saved byte goes to one part. */
static int check_saved(const struct sl_state_part *parts, size_t count, uint32_t ranks,
                       const struct head *head, const uint8_t *in)
{
    const uint8_t *at = in + sizeof(*head), *end = in + head->len;
    size_t to, from;

    for (uint32_t j = 0; j < head->parts; j++) {
        struct saved saved;
        size_t taken = 0;
        int err = next_part(&at, end, &saved);

        if (err != 0)
            return err;
        if (is_saved_again(&saved, at, end, head->parts - j - 1))
            return sl_fail(-EBADMSG, "saved state has elements of the %s with id %llu twice",
                           name_of(saved.head.kind), (unsigned long long)saved.head.id);
        for (size_t i = 0; i < count; i++)
            taken += shared(&parts[i], &saved, &to, &from);
        if (taken != saved.head.len && !is_dropped(saved.head.kind, head, ranks))
            return sl_fail(-EINVAL,
                           "of the saved %s with id %llu, %zu of %llu bytes have a place to go",
                           name_of(saved.head.kind), (unsigned long long)saved.head.id, taken,
                           (unsigned long long)saved.head.len);
    }
    if (at != end)
        return sl_fail(-EBADMSG, "saved state has bytes after its last part");
    return 0;
}

static void fill_part(const struct sl_state_part *part, const struct head *head, const uint8_t *in)
{
    const uint8_t *at = in + sizeof(*head), *end = in + head->len;
    size_t to, from, len;
    struct saved saved;

    for (uint32_t j = 0; j < head->parts && next_part(&at, end, &saved) == 0; j++) {
        len = shared(part, &saved, &to, &from);
        if (len > 0)
            memcpy((uint8_t *)part->data + to, saved.data + from, len);
    }
}

int sl_state_load(const struct sl_state_part *parts, size_t count, uint32_t ranks, const void *in,
                  size_t len, uint64_t *step)
{
    struct head head;
    int err = read_head(in, len, &head);

    if (err == 0)
        err = check_parts(parts, count, ranks, &head, in);
    if (err == 0)
        err = check_saved(parts, count, ranks, &head, in);
    if (err != 0)
        return err;
    for (size_t i = 0; i < count; i++) {
        if (is_dropped(parts[i].kind, &head, ranks))
            memset(parts[i].data, 0, parts[i].len);
        else
            fill_part(&parts[i], &head, in);
    }
    if (step != NULL)
        *step = head.step;
    return 0;
}
