/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State as bytes: a head of 40 bytes, then for each part one of 40 bytes and its data, with zeros
 * up to 8 bytes. A checksum over everything tells damage, not forgery; lengths are checked anyway.
 */
#include "compress/state.h"

#include "compress/codec.h"
#include "core/code.h"
#include "core/err.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC 0x53534c53u /* "SLSS" */
#define VERSION 2u

struct head {
    uint32_t magic, version;
    uint64_t len; /* of all bytes */
    uint64_t checksum;
    uint64_t step;
    uint32_t ranks, parts;
};

struct part_head {
    uint64_t id, first, len;
    uint32_t kind, mark;
    uint64_t count; /* elements; of what is loaded whole 1 */
};

_Static_assert(sizeof(struct head) == 40 && sizeof(struct part_head) == 40, "layout of files");

/* One part among the bytes. */
struct saved {
    struct part_head head;
    const uint8_t *data;
    uint64_t taken; /* elements that have found a place */
};

/* All of them but the empty ones, in the order of kinds, ids and elements. */
struct index {
    struct saved *parts; /* owned */
    size_t count;
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

static bool is_residual(uint32_t kind)
{
    return kind == SL_STATE_RESIDUAL || kind == SL_STATE_SHARD_RESIDUAL ||
           kind == SL_STATE_RESUM_RESIDUAL;
}

static bool has_elements(uint32_t kind)
{
    return is_residual(kind) || kind == SL_STATE_TURN;
}

static struct part_head head_of(const struct sl_state_part *part)
{
    uint64_t count = part->kind == SL_STATE_TURN ? part->count
                     : is_residual(part->kind)   ? part->len / sizeof(float)
                                                 : 1;

    return (struct part_head){part->id, part->first, part->len, part->kind, part->mark, count};
}

static const char *name_of(uint32_t kind)
{
    static const char *const names[] = {
        "?",      "residual",         "residual of a shard", "threshold",
        "factor", "residual of sums", "number of encodings"};

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
        struct part_head part = head_of(&parts[i]);

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

static bool has_right_count(const struct part_head *head)
{
    if (head->kind == SL_STATE_TURN)
        return head->len == sizeof(uint32_t);
    return head->count == (is_residual(head->kind) ? head->len / sizeof(float) : 1);
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
    if (saved->head.first > UINT64_MAX - saved->head.count)
        return sl_fail(-EBADMSG, "a part of saved state lies past all elements");
    if (!has_right_count(&saved->head))
        return sl_fail(-EBADMSG, "a %s of saved state has %llu bytes for %llu elements",
                       name_of(saved->head.kind), (unsigned long long)saved->head.len,
                       (unsigned long long)saved->head.count);
    *at = saved->data + padded(saved->head.len);
    return 0;
}

/* Elements that both have; *to and *from: where they begin in each. */
static uint64_t shared(const struct part_head *part, const struct part_head *saved, uint64_t *to,
                       uint64_t *from)
{
    uint64_t begin, end, part_end = part->first + part->count;
    uint64_t saved_end = saved->first + saved->count;

    if (part->kind != saved->kind || part->id != saved->id)
        return 0;
    if (!has_elements(part->kind) && part->len != saved->len)
        return 0;
    begin = part->first > saved->first ? part->first : saved->first;
    end = part_end < saved_end ? part_end : saved_end;
    if (begin >= end)
        return 0;
    *to = begin - part->first;
    *from = begin - saved->first;
    return end - begin;
}

/* Whether the shards are those of the bytes. */
static bool is_dropped(uint32_t kind, const struct head *head, uint32_t ranks)
{
    return (kind == SL_STATE_SHARD_RESIDUAL || kind == SL_STATE_RESUM_RESIDUAL) &&
           head->ranks != ranks;
}

static const char *codec_of(uint32_t mark)
{
    const struct sl_codec *codec = sl_codec_by_id(sl_code_mark_name(mark));

    return mark == 0 ? "no codec" : codec != NULL ? codec->name : "an unknown codec";
}

static int check_mark(const struct part_head *part, const struct part_head *saved)
{
    if (part->mark == saved->mark)
        return 0;
    return sl_fail(-EINVAL,
                   "the saved %s with id %llu is of %s, parameters %06x; here it is of %s, "
                   "parameters %06x: load it where the codec is the same",
                   name_of(part->kind), (unsigned long long)part->id, codec_of(saved->mark),
                   saved->mark & 0xffffff, codec_of(part->mark), part->mark & 0xffffff);
}

static int in_order(const void *a, const void *b)
{
    const struct part_head *x = &((const struct saved *)a)->head;
    const struct part_head *y = &((const struct saved *)b)->head;

    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Of elements that are saved twice there could be as many as there should without being all. */
static int check_apart(const struct index *index)
{
    for (size_t i = 1; i < index->count; i++) {
        const struct part_head *a = &index->parts[i - 1].head, *b = &index->parts[i].head;

        if (a->kind == b->kind && a->id == b->id && a->first + a->count > b->first)
            return sl_fail(-EBADMSG, "saved state has elements of the %s with id %llu twice",
                           name_of(a->kind), (unsigned long long)a->id);
    }
    return 0;
}

static int read_parts(const struct head *head, const uint8_t *in, struct index *out)
{
    const uint8_t *at = in + sizeof(*head), *end = in + head->len;

    if (head->parts > (head->len - sizeof(*head)) / sizeof(struct part_head))
        return sl_fail(-EBADMSG, "saved state ends before its last part");
    out->parts = malloc((head->parts + 1) * sizeof(*out->parts));
    if (out->parts == NULL)
        return sl_fail(-ENOMEM, "no memory to list %u parts of saved state", head->parts);
    for (uint32_t i = 0; i < head->parts; i++) {
        struct saved *saved = &out->parts[out->count];
        int err = next_part(&at, end, saved);

        if (err != 0)
            return err;
        saved->taken = 0;
        out->count += saved->head.count > 0;
    }
    if (at != end)
        return sl_fail(-EBADMSG, "saved state has bytes after its last part");
    qsort(out->parts, out->count, sizeof(*out->parts), in_order);
    return check_apart(out);
}

static bool is_before(const struct part_head *saved, const struct part_head *part)
{
    if (saved->kind != part->kind)
        return saved->kind < part->kind;
    if (saved->id != part->id)
        return saved->id < part->id;
    return saved->first + saved->count <= part->first;
}

/* The first that shares elements with part, if any does. */
static size_t find(const struct index *index, const struct part_head *part)
{
    size_t low = 0, high = index->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (is_before(&index->parts[middle].head, part))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The part's elements as those of which it is counted how often they were encoded. */
static struct part_head counted(const struct part_head *part)
{
    struct part_head turn = *part;

    turn.kind = SL_STATE_TURN;
    return turn;
}

/* By another schedule there may be no encodings of own elements: known by their count, none of
 * them needs a residual. */
static bool may_lack(const struct part_head *part, const struct index *index, bool moved)
{
    struct part_head turn = counted(part);
    uint64_t to, from;
    size_t i = find(index, &turn);

    return moved && part->kind == SL_STATE_RESIDUAL && i < index->count &&
           shared(&turn, &index->parts[i].head, &to, &from) != 0;
}

/* Each part has all its elements once, by its codec. */
static int check_part(const struct sl_state_part *wanted, struct index *index, bool dropped,
                      bool moved)
{
    struct part_head part = head_of(wanted);
    uint64_t to, from, more, found = 0;

    for (size_t i = find(index, &part); i < index->count; i++) {
        struct saved *saved = &index->parts[i];
        int err;

        more = shared(&part, &saved->head, &to, &from);
        if (more == 0)
            break;
        err = check_mark(&part, &saved->head);
        if (err != 0)
            return err;
        found += more;
        saved->taken += more;
    }
    if (found == part.count || dropped || (found == 0 && may_lack(&part, index, moved)))
        return 0;
    return sl_fail(-EBADMSG, "saved state has %llu of the %llu elements of the %s with id %llu",
                   (unsigned long long)found, (unsigned long long)part.count, name_of(part.kind),
                   (unsigned long long)part.id);
}

/* As may_lack(), of what is saved. */
static bool may_go(const struct part_head *saved, const struct sl_state_part *parts, size_t count)
{
    struct part_head turn = counted(saved);
    uint64_t to, from;

    for (size_t i = 0; i < count && saved->kind == SL_STATE_RESIDUAL; i++) {
        struct part_head part = head_of(&parts[i]);

        if (shared(&part, &turn, &to, &from) != 0)
            return true;
    }
    return false;
}

/* Each saved element goes to one part. */
static int check_saved(const struct saved *saved, const struct sl_state_part *parts, size_t count,
                       bool moved)
{
    const struct part_head *head = &saved->head;

    if (saved->taken == head->count || (saved->taken == 0 && moved && may_go(head, parts, count)))
        return 0;
    return sl_fail(-EINVAL,
                   "of the saved %s with id %llu, %llu of %llu elements have a place to go",
                   name_of(head->kind), (unsigned long long)head->id,
                   (unsigned long long)saved->taken, (unsigned long long)head->count);
}

static void fill_turn(const struct sl_state_part *part, const struct saved *saved)
{
    uint32_t turn;

    memcpy(&turn, saved->data, sizeof(turn));
    if (turn > *(uint32_t *)part->data)
        *(uint32_t *)part->data = turn;
}

static void fill_part(const struct sl_state_part *part, const struct index *index)
{
    struct part_head wanted = head_of(part);
    uint64_t to, from, count;

    for (size_t i = find(index, &wanted); i < index->count; i++) {
        const struct saved *saved = &index->parts[i];

        count = shared(&wanted, &saved->head, &to, &from);
        if (count == 0)
            break;
        if (part->kind == SL_STATE_TURN)
            fill_turn(part, saved);
        else if (is_residual(part->kind))
            memcpy((float *)part->data + to, saved->data + from * sizeof(float),
                   count * sizeof(float));
        else if (part->len > 0)
            memcpy(part->data, saved->data, part->len);
    }
}

static int check(const struct sl_state_part *parts, size_t count, const struct head *head,
                 uint32_t ranks, struct index *index)
{
    bool moved = head->ranks != ranks;
    int err = 0;

    for (size_t i = 0; i < count && err == 0; i++)
        err = check_part(&parts[i], index, is_dropped(parts[i].kind, head, ranks), moved);
    for (size_t i = 0; i < index->count && err == 0; i++)
        if (!is_dropped(index->parts[i].head.kind, head, ranks))
            err = check_saved(&index->parts[i], parts, count, moved);
    return err;
}

int sl_state_load(const struct sl_state_part *parts, size_t count, uint32_t ranks, const void *in,
                  size_t len, uint64_t *step)
{
    struct index index = {0};
    struct head head;
    int err = read_head(in, len, &head);

    err = err ?: read_parts(&head, in, &index);
    err = err ?: check(parts, count, &head, ranks, &index);
    for (size_t i = 0; i < count && err == 0; i++) {
        bool dropped = is_dropped(parts[i].kind, &head, ranks);

        if (parts[i].kind == SL_STATE_TURN || head.ranks != ranks)
            memset(parts[i].data, 0, parts[i].len);
        if (!dropped)
            fill_part(&parts[i], &index);
    }
    free(index.parts);
    if (err == 0 && step != NULL)
        *step = head.step;
    return err;
}
