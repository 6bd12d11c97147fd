/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of two processes of one host over their unix socket: layout and checks.
 *
 * One record of the SOCK_SEQPACKET socket is one message. Both ends run on one kernel, so numbers
 * travel in the machine's own order. Everything that is read here came from outside:
 * shm_msg_parse() is the only way in, and tests/fuzz/fuzz_shm_hello.c feeds it.
 */
#ifndef SL_SHM_WIRE_H
#define SL_SHM_WIRE_H

#include "core/transport.h"

#include <stddef.h>
#include <stdint.h>

#define SHM_MAGIC 0x48534c53u /* "SLSH" */
#define SHM_VERSION 2         /* of messages, segment layout and address together */
#define SHM_TOKEN_LEN 16
#define SHM_NAME_MAX 64 /* of the listening socket, without the leading zero byte */
#define SHM_TEXT_MAX 200
#define SHM_RING_MIN 4096u
#define SHM_RING_MAX (1u << 30)
#define SHM_CELLS_MIN 16u
#define SHM_CELLS_MAX 4096u

enum shm_msg_type {
    SHM_HELLO = 1, /* from the dialling side; descriptors: segment, page, event */
    SHM_WELCOME,   /* its answer; descriptors: page, event */
    SHM_REFUSE,    /* instead of either: a code and a sentence */
    SHM_CTRL,      /* a control message of the user of the transport */
    SHM_REGION,    /* a registered region; descriptor: its file */
    SHM_DROP,      /* a region is no more */
    SHM_BYE,       /* the endpoint is being destroyed in order */
    SHM_MSG_TYPE_COUNT
};

enum shm_hello_flag {
    SHM_FLAG_BARRIER = 1u << 0, /* this process takes part in membarrier(GLOBAL_EXPEDITED) */
};

struct shm_msg_head {
    uint32_t magic;
    uint16_t version;
    uint16_t type;
};

/* HELLO and WELCOME. The token that is meant comes first in every version, so that a peer of
 * another version can read the reason. */
struct shm_hello {
    uint8_t to[SHM_TOKEN_LEN];   /* the endpoint that is meant */
    uint8_t from[SHM_TOKEN_LEN]; /* the sender's endpoint */
    uint32_t ring_bytes;         /* of the segment, each way; a multiple of 64 */
    uint32_t cells;              /* each way; a power of two */
    uint32_t flags;              /* SHM_FLAG_* */
    uint32_t unused;
    uint64_t trial_addr; /* where the sender's page lies in the sender: for a trial read */
};

struct shm_refuse {
    uint8_t to[SHM_TOKEN_LEN]; /* as in shm_hello; zero when unknown */
    uint8_t from[SHM_TOKEN_LEN];
    int32_t code; /* a negative errno */
    char text[SHM_TEXT_MAX];
};

struct shm_region_msg {
    uint64_t id;     /* grows from one to the next; never used again */
    uint64_t len;    /* bytes */
    uint64_t fd_off; /* of the region in its file */
};

struct shm_msg {
    struct shm_msg_head head;
    union {
        struct shm_hello hello;
        struct shm_refuse refuse;
        struct shm_region_msg region; /* DROP: the id alone */
        uint8_t ctrl[SL_CTRL_MAX];
    };
};

/* The address of ep_addr(). */
struct shm_addr {
    uint32_t magic;
    uint16_t version;
    uint16_t name_len;
    uint8_t host[16]; /* identity of host and network namespace, hashed */
    uint8_t token[SHM_TOKEN_LEN];
    char name[SHM_NAME_MAX];
};

/* The key of a region. */
struct shm_key {
    uint64_t id, len;
};

/* Bytes of a message with `body` bytes behind its head. */
#define SHM_MSG_LEN(body) (sizeof(struct shm_msg_head) + (body))

/* Checks len received bytes and copies them into *out, whose unreceived rest is zero; *body tells
 * the bytes behind the head. -EPROTO: another version (out->head is filled); -EBADMSG: not of ours,
 * or its numbers are out of bounds. */
int shm_msg_parse(const void *bytes, size_t len, struct shm_msg *out, size_t *body);

/* -EPROTO, with both versions in the sentence. */
int shm_fail_version(unsigned other);

/* -EINVAL: not such an address; -EPROTO: another version's. */
int shm_addr_parse(const struct sl_addr *addr, struct shm_addr *out);
/* addr->name_len is within its name. */
void shm_addr_pack(const struct shm_addr *addr, struct sl_addr *out);

/* -EINVAL: no key that shm_mr_reg() made. */
int shm_key_parse(const struct sl_key *key, struct shm_key *out);
void shm_key_pack(const struct shm_key *key, struct sl_key *out);

#endif
