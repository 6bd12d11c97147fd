/* SPDX-License-Identifier: Apache-2.0 */
/* What arrives where records of TLS are due: a stream of any bytes opens to nothing, and is read no
 * further than it is long; what we sealed ourselves opens again, in pieces of any size, and not
 * after one byte of it was changed. */
#include "core/err.h"
#include "tcp/tls_inside.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct sl_openssl *openssl;

static void foreign(struct sl_record_dir *rx, const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size), out[SL_RECORD_PLAIN];
    enum sl_record_type type;
    int len = sl_record_len(data, size);

    sl_assert(copy != NULL || size == 0);
    if (len > 0) {
        sl_assert(len >= SL_RECORD_AROUND && len <= SL_RECORD_PLAIN + SL_RECORD_AROUND);
        if ((size_t)len <= size) {
            memcpy(copy, data, (size_t)len); /* its own end is where sanitizers look */
            copy = realloc(copy, (size_t)len);
            sl_assert(sl_record_open(rx, copy, (size_t)len, out, &type) == -EBADMSG);
        }
    }
    sl_assert(len == 0 || len == -EBADMSG || len > 0);
    free(copy);
}

static void own(struct sl_record_dir *tx, struct sl_record_dir *rx, const uint8_t *data,
                size_t size)
{
    static uint8_t record[SL_RECORD_PLAIN + SL_RECORD_AROUND], out[SL_RECORD_PLAIN];
    enum sl_record_type type;
    size_t at = size > 2 ? (size_t)(data[0] << 8 | data[1]) : 0,
           len = size < SL_RECORD_PLAIN ? size : SL_RECORD_PLAIN;

    sl_assert(sl_record_seal(tx, SL_RECORD_DATA, data, len, record));
    sl_assert(sl_record_len(record, sizeof(record)) == (int)(len + SL_RECORD_AROUND));
    at %= len + SL_RECORD_AROUND;
    record[at] ^= 1;
    sl_assert(sl_record_open(rx, record, len + SL_RECORD_AROUND, out, &type) == -EBADMSG);
    record[at] ^= 1;
    rx->number--;
    sl_assert(sl_record_open(rx, record, len + SL_RECORD_AROUND, out, &type) == 0 &&
              type == SL_RECORD_DATA);
    sl_assert(memcmp(out, data, len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t secret[SL_RECORD_HASH_MAX] = {42};
    struct sl_record_dir tx, rx;
    enum sl_record_suite suite;

    if (size == 0 || (openssl == NULL && sl_openssl_get(&openssl) != 0))
        return 0;
    suite = (enum sl_record_suite)((*data >> 2 & 0x3f) % SL_RECORD_SUITES);
    sl_assert(sl_record_dir_init(&tx, openssl, suite, true, secret) == 0);
    sl_assert(sl_record_dir_init(&rx, openssl, suite, false, secret) == 0);
    sl_tls_other((enum sl_record_type) * data, data + 1, size - 1);
    if (*data & 2)
        own(&tx, &rx, data + 1, size - 1);
    else
        foreign(&rx, data + 1, size - 1);
    sl_record_dir_fini(&tx);
    sl_record_dir_fini(&rx);
    return 0;
}
