/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transport that wraps another and uses every freedom that core/transport.h leaves: storms of
 * -EAGAIN, completions that come late and in another order, small progress budgets, and, on demand,
 * the loss of an endpoint.
 */
#ifndef SL_TESTS_FAKE_FAULTY_H
#define SL_TESTS_FAKE_FAULTY_H

#include "core/transport.h"

/* Wraps inner, which must be completed. One wrapping per process; static storage. */
const struct sl_transport_ops *faulty_wrap(const struct sl_transport_ops *inner, uint64_t seed);

/* Loses ep as a reset connection would: at the next progress of its interface the handler hears it,
 * then its pending requests end with -ECONNRESET. */
void faulty_break(struct sl_ep *ep);

#endif
