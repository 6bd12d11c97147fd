/* SPDX-License-Identifier: Apache-2.0 */
/* The common part of the files of a TLS connection: tls.h lists them. */
#ifndef SL_TCP_TLS_INSIDE_H
#define SL_TCP_TLS_INSIDE_H

#include "tcp/record.h"
#include "tcp/tls.h"

#define SL_TLS_GROUP_RECORDS 8 /* sealed for one send() */
#define SL_TLS_OUT_BYTES (SL_TLS_GROUP_RECORDS * (SL_RECORD_PLAIN + SL_RECORD_AROUND) + 64)
#define SL_TLS_IN_BYTES (SL_TLS_GROUP_RECORDS * SL_RECORD_MAX)
#define SL_TLS_BUFFER_BYTES (SL_TLS_OUT_BYTES + SL_TLS_IN_BYTES + SL_RECORD_PLAIN)
#define SL_TLS_KEY_UPDATE_BYTES 5

struct sl_tls_handshake;

struct sl_tls {
    const struct sl_openssl *openssl;
    struct sl_tls_handshake *handshake; /* owned; NULL: done */
    bool client, in_kernel;
    struct sl_tls_terms agreed;
    enum sl_record_suite suite; /* once the handshake is done */
    struct sl_record_dir tx, rx;
    uint32_t out_pos, out_end; /* records that the kernel has not taken */
    /* bytes of the caller's in them, or (in_kernel) that it is not sure to get out */
    uint32_t out_plain;
    uint32_t in_pos, in_end;       /* records that came, the last one maybe in part */
    uint32_t plain_pos, plain_end; /* of a record for which the caller had too little room */
    uint8_t *out, *in,
        *plain; /* parts of one mapping, whose pages cost memory once they are used */
};

extern const uint8_t sl_tls_key_update[SL_TLS_KEY_UPDATE_BYTES];

/* The kinds of records that hold no data. */
enum sl_tls_other {
    SL_TLS_OTHER_END, /* the peer closes in order */
    SL_TLS_OTHER_ALERT,
    SL_TLS_OTHER_KEY,    /* later records have the next key */
    SL_TLS_OTHER_TICKET, /* of no use to us */
    SL_TLS_OTHER_BAD,
};
enum sl_tls_other sl_tls_other(enum sl_record_type type, const uint8_t *bytes, size_t len);

/* It has sealed as much as it may. */
static inline bool sl_tls_key_is_old(const struct sl_tls *tls)
{
    return tls->tx.number >= sl_tls_records_per_key && !tls->agreed.keys_stay;
}

#endif
