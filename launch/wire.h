/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes that ranks speak at their meeting place: hello, proof, frames. No input or output here,
 * so that fuzzing reaches all of it.
 *
 *   guest                                    rank 0, then any rank that has children
 *   hello (version, rank, size, job, nonce) ->
 *                                           <- CHALLENGE (nonce), or REFUSE (code, sentence)
 *   PROOF (mac of both nonces)              ->
 *                                           <- WELCOME (mac of both nonces, the job's key), or
 *                                           REFUSE
 *
 *   rank                                     rank 0
 *   SEAT (where its children find it)       -> from ranks that have children
 *                                           <- OPEN: listen by TCP, too, and send SEAT again
 *                                           <- PARENT (that rank's seat)
 *   SEATED: parent and children are there   -> and the connection ends, but for rank 0's children
 *
 *   child                                    parent
 *   GATHER (sequence, shares of a subtree)  ->
 *                                           <- RESULT (sequence, shares) for each piece
 *                                           <- INQUIRE: who is missing?
 *   MISSING (ranks)                         ->
 *
 * FAILED (code, sentence) may come in place of any of these from PARENT on: it is over.
 *
 * Where there is a secret, all that has a body after the macs is sealed: encrypted, and impossible
 * to change, to repeat or to move to another number or direction unnoticed.
 *
 * Numbers are little endian. The first 12 bytes of a hello never change, so that two versions can
 * tell each other which they are. */
#ifndef SL_LAUNCH_WIRE_H
#define SL_LAUNCH_WIRE_H

#include "core/secret.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SL_WIRE_VERSION 3
#define SL_HELLO_BYTES 64
#define SL_NONCE_BYTES 24
#define SL_JOB_BYTES 16
#define SL_MAC_BYTES SL_DIGEST_BYTES
#define SL_FRAME_BYTES 16   /* header of every frame */
#define SL_SEQ_BYTES 8      /* what precedes the bytes of GATHER and RESULT */
#define SL_SENTENCE_MAX 640 /* longest text of REFUSE and FAILED */
#define SL_JOB_KEY_BYTES SL_DIGEST_BYTES
#define SL_WELCOME_BYTES (SL_MAC_BYTES + SL_JOB_KEY_BYTES)
#define SL_WELCOME_MAX (SL_WELCOME_BYTES + SL_SEAL_BYTES)
#define SL_CONTROL_MAX                                                                             \
    (4 + SL_SENTENCE_MAX + SL_SEAL_BYTES) /* longest body but GATHER's, RESULT's */
#define SL_MISSING_RANGES_MAX 64
#define SL_MISSING_MAX (8 * SL_MISSING_RANGES_MAX)
#define SL_RANKS_MAX (1 << 20)

enum sl_frame_kind {
    SL_FRAME_CHALLENGE = 1,
    SL_FRAME_PROOF,
    SL_FRAME_WELCOME,
    SL_FRAME_REFUSE,
    SL_FRAME_GATHER,
    SL_FRAME_RESULT,
    SL_FRAME_FAILED,
    SL_FRAME_SEAT,
    SL_FRAME_OPEN,
    SL_FRAME_PARENT,
    SL_FRAME_SEATED,
    SL_FRAME_INQUIRE,
    SL_FRAME_MISSING,
};

/* What both sides must agree on. */
struct sl_terms {
    int rank; /* who we are */
    int size;
    uint8_t job[SL_JOB_BYTES];
    const void *secret; /* borrowed for as long as the terms are used */
    size_t secret_len;  /* 0: none */
    bool sealed;        /* what follows the proofs; false: anybody may have heard the secret */
};

struct sl_hello {
    uint8_t bytes[SL_HELLO_BYTES];
};

struct sl_frame {
    enum sl_frame_kind kind;
    uint64_t len; /* of what follows the header */
};

static inline uint16_t sl_get16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t sl_get32(const uint8_t *p)
{
    return sl_get16(p) | (uint32_t)sl_get16(p + 2) << 16;
}

static inline uint64_t sl_get64(const uint8_t *p)
{
    return sl_get32(p) | (uint64_t)sl_get32(p + 4) << 32;
}

static inline void sl_put(uint8_t *p, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        p[i] = (uint8_t)(value >> (8 * i));
}

/* Fixed-size name of a job; every text, "" too, has one. -ENOMEM. */
int sl_job_hash(const char *job, uint8_t out[SL_JOB_BYTES]);

void sl_hello_make(const struct sl_terms *terms, const uint8_t nonce[SL_NONCE_BYTES],
                   struct sl_hello *out);

/* Judges the first len bytes of what should become a hello, as terms->rank. 0: not complete, fine
 * so far; 1: complete and acceptable, *rank is its sender (who has proved nothing yet). -EBADMSG:
 * no hello of any version; -EBUSY: of another job, whose own rank 0 may get this port soon;
 * -EPROTO: of another version or size, rank out of range, secret on one side only. */
int sl_hello_check(const struct sl_terms *terms, const uint8_t *bytes, size_t len, int *rank);

/* What shows that a side holds the secret without telling it: HMAC-SHA256 under the secret of the
 * side's name, the hello and the host's nonce. -ENOMEM. */
int sl_proof_make(const struct sl_terms *terms, bool by_host, const struct sl_hello *hello,
                  const uint8_t nonce[SL_NONCE_BYTES], uint8_t out[SL_MAC_BYTES]);

/* What the two ends of a connection seal their messages with, from secret, hello and the host's
 * nonce: others for each connection. */
struct sl_meeting_keys {
    bool sealed; /* false: terms.sealed was not set, and there are no keys */
    uint8_t up[SL_DIGEST_BYTES], down[SL_DIGEST_BYTES];
};

/* -ENOMEM */
int sl_meeting_keys_make(const struct sl_terms *terms, const struct sl_hello *hello,
                         const uint8_t nonce[SL_NONCE_BYTES], struct sl_meeting_keys *out);

/* How long rank 0 waits for the shares of an exchange, and then for all to have its result. Before
 * all but the first, ranks connect, each for as long as the timeout: who has failed to comes a
 * little later, and says with whom. */
static inline uint64_t sl_exchange_wait_ns(uint64_t timeout_ns, uint64_t seq)
{
    return seq > 1 ? timeout_ns + timeout_ns / 4 : timeout_ns;
}

/* What all ranks of a job share: rank 0 draws the job's key, WELCOME carries it. */
struct sl_job_keys {
    uint8_t job[SL_JOB_KEY_BYTES];
    uint8_t result[SL_DIGEST_BYTES];  /* seals results, which are the same bytes for all */
    uint8_t session[SL_DIGEST_BYTES]; /* for transports: sl_exchange.session */
    uint8_t tree[SL_DIGEST_BYTES];    /* proves to a parent, and to a child, who is of this job */
};

/* The other three from keys->job. -ENOMEM. */
int sl_job_keys_derive(struct sl_job_keys *keys);

/* Numbers that messages of a connection are sealed with, beside the exchange's own. */
#define SL_NUMBER_WELCOME 0
#define SL_NUMBER_FAILED UINT64_MAX
#define SL_NUMBER_SEAT (UINT64_MAX - 1)   /* and PARENT, the other way */
#define SL_NUMBER_OPENED (UINT64_MAX - 2) /* the second SEAT */

/* The number of a MISSING, of which there is one in an exchange. */
static inline uint64_t sl_missing_number(uint64_t seq)
{
    return UINT64_C(1) << 62 | seq;
}

/* The number that a piece of a result is sealed with, under the job's own key. */
static inline uint64_t sl_piece_number(uint64_t seq, unsigned piece)
{
    return seq << 24 | piece;
}

/* How much longer a message is for its seal. */
static inline size_t sl_seal_len(bool sealed)
{
    return sealed ? SL_SEAL_BYTES : 0;
}

/* The body of WELCOME after its header: the host's proof and the job's key, sealed where keys are.
 * Returns its length or a negative errno. */
int sl_welcome_make(const struct sl_meeting_keys *keys, const uint8_t mac[SL_MAC_BYTES],
                    const struct sl_job_keys *job, uint8_t out[SL_WELCOME_MAX]);
/* Takes the job's key out of a body whose proof was found right. -EBADMSG. */
int sl_welcome_open(const struct sl_meeting_keys *keys, const uint8_t body[SL_WELCOME_MAX],
                    struct sl_job_keys *job);

/* A whole frame whose body is sealed where keys are, under their key of one direction. Returns its
 * length, at most SL_FRAME_BYTES + len + SL_SEAL_BYTES, or a negative errno. */
int sl_control_make(const struct sl_meeting_keys *keys, bool up, enum sl_frame_kind kind,
                    uint64_t number, const void *body, size_t len, uint8_t *out);
/* Opens the body of such a frame in its place. *len is the body's. -EBADMSG, without a sentence. */
int sl_control_open(const struct sl_meeting_keys *keys, bool up, uint64_t number, uint8_t *frame,
                    size_t *len);

void sl_frame_make(enum sl_frame_kind kind, uint64_t len, uint8_t out[SL_FRAME_BYTES]);

/* -EBADMSG: not a frame's header. len is not judged here. */
int sl_frame_parse(const uint8_t bytes[SL_FRAME_BYTES], struct sl_frame *out);

/* The body of REFUSE and FAILED: a negative errno and a sentence. Returns its length. */
size_t sl_sentence_make(int code, const char *text, uint8_t out[4 + SL_SENTENCE_MAX]);

/* The reverse: text becomes printable ASCII with an end, code one of a few errnos (-EPROTO in place
 * of any other). -EBADMSG: too short or too long; from is named as the sender. */
int sl_sentence_parse(int from, const uint8_t *bytes, size_t len, int *code,
                      char text[SL_SENTENCE_MAX + 1]);

/* The body of MISSING: ranges of ranks, as many as fit. Returns its length. */
size_t sl_missing_make(const bool *missing, int size, uint8_t out[SL_MISSING_MAX]);
/* Marks those ranks in missing[], and no other than first .. end - 1. -EBADMSG: not such a body. */
int sl_missing_parse(const uint8_t *bytes, size_t len, int first, int end, bool *missing);

/* "3, 5-7" for the ranks in [0, size) whose missing[] is true; ends in ", …" when it was cut. */
void sl_rank_list(const bool *missing, int size, char *out, size_t cap);

#endif
