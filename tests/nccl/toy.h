/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small, correct network plugin over TCP on the loopback, and mistakes that can be planted in it:
 * it is to the driver what a known weight is to a scale. One connection a comm; the receiver grants
 * {tags, sizes} of each group, the sender answers with headers and data, so the oldest group is
 * known to both.
 */
#pragma once

#include "tools/nccl-driver/abi.h"

/* name, and what a plugin's author did wrong */
#define TOY_FAULTS(X)                                                                              \
    X(swapped_tags, "a send takes the first free receive of the group, whatever its tag")          \
    X(wrong_size, "test reports the room of a receive, not what arrived")                          \
    X(previous_slot, "a send transmits the buffer of the send before it")                          \
    X(no_truncation, "a message longer than its receive is written in full")                       \
    X(blocking_accept, "accept waits until someone has connected")                                 \
    X(early_send_done, "a send is done once it is queued")                                         \
    X(close_reads, "closeSend still reads what was deregistered and freed")                        \
    X(close_writes, "closeRecv still receives into what was deregistered")                         \
    X(handle_overrun, "listen writes more than a handle holds")                                    \
    X(handle_overrun_later, "connect keeps its state behind the handle")                           \
    X(property_left_alone, "getProperties leaves the port as it was")                              \
    X(half_open_leaks, "finalize forgets connections that did not come up")                        \
    X(profiler_not_stopped, "some events of the profiler have a start and no stop")                \
    X(profiler_stops_nothing, "an event that was not taken is stopped")                            \
    X(profiler_late, "an event is started after its request was reported done")                    \
    X(marker_left, "an optional receive that would block leaves the marker in *request")           \
    X(request_unwritten, "a send that would block leaves *request as it was")                      \
    X(group_done_early, "a group is done with the first of its messages")                          \
    X(loss_is_internal, "a lost peer is reported as ncclInternalError")                            \
    X(loss_is_silent, "a lost peer is not reported at all")                                        \
    X(stranger_accepted, "whoever connects is taken for the peer")                                 \
    X(stranger_blocks, "accept waits for the first words of whoever connects")                     \
    X(request_twice, "a request is given out again before it is done")                             \
    X(null_context, "finalize looks into a NULL context")                                          \
    X(sizes_overrun, "test writes 8 sizes for a group of fewer")                                   \
    X(one_connect_at_a_time, "connect keeps its state in one place for all")                       \
    X(finalize_ends_all, "finalize of one context ends the connections of the others")             \
    X(bit_flip, "one bit of every 50th message is wrong")                                          \
    X(packet_left_out, "of long messages 4096 bytes are left out, the rest is in their place")     \
    X(close_discards, "closeSend discards what the kernel has not sent yet")                       \
    X(thread_left, "finalize leaves a thread behind")                                              \
    X(out_of_order, "the second of two messages lands in the first receive")                       \
    X(zero_lost, "a message of zero bytes is not sent")                                            \
    X(listener_waits, "closeListen waits for an accept")                                           \
    X(registration_leaks, "deregMr frees nothing")                                                 \
    X(result_out_of_range, "a success is -1 once in a while")                                      \
    X(dead_peer_signal, "a last word to a dead peer raises SIGPIPE")                               \
    X(attribute_blocks, "setNetAttr takes a second")

enum toy_fault {
    TOY_NO_FAULT,
#define TOY_ENUM(name, text) TOY_##name,
    TOY_FAULTS(TOY_ENUM)
#undef TOY_ENUM
};

extern enum toy_fault toy_fault;

int toy_init(void **ctx, uint64_t id, struct net_config *config, net_logger logger,
             net_profiler profiler);
int toy_finalize(void *ctx);
int toy_devices(int *count);
int toy_listen(void *ctx, int dev, void *handle, void **comm);
int toy_connect(void *ctx, int dev, void *handle, void **comm, void **device);
int toy_accept(void *listen, void **comm, void **device);
int toy_reg_mr(void *comm, void *data, size_t len, int type, void **mr);
int toy_dereg_mr(void *comm, void *mr);
int toy_isend(void *comm, void *data, size_t len, int tag, void *mr, void *phandle, void **request);
int toy_irecv(void *comm, int n, void **data, size_t *sizes, int *tags, void **mrs, void **phandles,
              void **request);
int toy_test(void *request, int *done, int *sizes);
int toy_close_send(void *comm);
int toy_close_recv(void *comm);
int toy_close_listen(void *comm);
