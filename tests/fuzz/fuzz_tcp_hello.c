/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever connects to the tcp port: hello and answer, as they are and with their sums put right,
 * so that what lies behind the sum is reached too. What is accepted must survive a round trip. */
#include "core/crc.h"
#include "tcp/frame.h"

#include "core/err.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void put_sum(uint8_t *bytes, size_t len)
{
    uint32_t sum = sl_crc32c(0, bytes, len - 4);

    for (unsigned i = 0; i < 4; i++)
        bytes[len - 4 + i] = (uint8_t)(sum >> 8 * i);
}

static void check_hello(const uint8_t bytes[SL_TCP_HELLO_BYTES])
{
    struct sl_tcp_hello hello, again;
    uint8_t out[SL_TCP_HELLO_BYTES];

    if (sl_tcp_hello_decode(bytes, &hello) != 0)
        return;
    sl_assert(hello.conn_count <= SL_TCP_DATA_CONNS_MAX && hello.conn_idx <= hello.conn_count);
    sl_tcp_hello_encode(&hello, out);
    sl_assert(sl_tcp_hello_decode(out, &again) == 0);
    sl_assert(again.conn_idx == hello.conn_idx && again.rank == hello.rank);
    sl_assert(memcmp(again.to, hello.to, SL_TCP_NAME_BYTES) == 0 && again.tls == hello.tls);
}

static void check_answer(const uint8_t bytes[SL_TCP_ANSWER_BYTES])
{
    struct sl_tcp_answer answer;

    if (sl_tcp_answer_decode(bytes, &answer) == 0)
        sl_assert(answer.verdict <= SL_TCP_NOBODY);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t bytes[SL_TCP_HELLO_BYTES] = {0};

    memcpy(bytes, data, size < sizeof(bytes) ? size : sizeof(bytes));
    check_hello(bytes);
    check_answer(bytes);
    put_sum(bytes, SL_TCP_ANSWER_BYTES);
    check_answer(bytes);
    memcpy(bytes, data, size < sizeof(bytes) ? size : sizeof(bytes));
    put_sum(bytes, SL_TCP_HELLO_BYTES);
    check_hello(bytes);
    return 0;
}
