/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wire-up: endpoints between two ranks, made when one of them first needs the other.
 *
 * Each rank says once where it is reached (struct sl_wireup_addr, part of the record that ranks
 * exchange at start). A rank that needs a peer dials that address, both prove that they belong to
 * the job, and the two swap endpoint addresses over the pipe, transport by transport, until an
 * endpoint is up on both sides. The pipe closes then.
 *
 * An owner whose connections are not one for each pair of ranks (NCCL's) numbers them itself, and
 * says for each hello whether it is awaited: struct sl_wireup_owner.
 *
 *     dialer                                      acceptor
 *     HELLO (who, whom, transports, nonce)     ->
 *                                              <- CHALLENGE (nonce, proof)
 *     PROOF (proof)                            ->
 *                                              <- OFFER (transport, address of an endpoint)
 *     ANSWER (transport, address)              ->
 *                   both connect their endpoints
 *     UP (transport)                           ->
 *                                              <- DONE (transport)
 *
 * A side whose endpoint does not come about says FAILED (transport, why), and the next OFFER is for
 * the next transport; REFUSE (code, why) ends it for good. A dialer whose key is another one says
 * REFUSE (-EACCES) instead of PROOF. All words after the proofs are sealed (core/secret.h). Of two
 * ranks that dial each other the higher one's dial counts: the lower one drops its own when it sees
 * the other's HELLO, and REFUSE (-EBUSY) answers one that came too late. The same code asks the
 * dialer of a numbered connection to dial again: the acceptor lacked memory.
 *
 * Nothing here blocks. Pipes are sockets (wireup_socket.c), or the simulator's.
 */
#ifndef SL_CORE_WIREUP_H
#define SL_CORE_WIREUP_H

#include "core/list.h"
#include "core/pending.h"
#include "core/secret.h"
#include "core/transport.h"

#include <poll.h>

#define SL_WIREUP_VERSION 3
#define SL_WIREUP_ID_BYTES 16
#define SL_WIREUP_PLACES_BYTES 36

/* Where a worker is reached. Sent as it lies in memory; 64 bytes. */
struct sl_wireup_addr {
    uint8_t id[SL_WIREUP_ID_BYTES]; /* random; who does not know it is not answered */
    uint64_t host;                  /* sl_host_hash(): workers of one host try local pipes first */
    uint16_t port;                  /* of the places; 0: there are none */
    uint8_t place_count, reserved;
    uint8_t places[SL_WIREUP_PLACES_BYTES]; /* each a byte 4 or 6, then 4 or 16 of the address */
};

/* ---- pipes: bytes in order between two workers ---- */

struct sl_pipe;
struct sl_wire;

struct sl_wire_ops {
    /* Listens, and fills in *addr, but for an id that is there. one_host: no peer is on another
     * host, so nothing is opened that other hosts could reach. */
    int (*open)(struct sl_worker *worker, bool one_host, struct sl_wireup_addr *addr,
                struct sl_wire **out);
    void (*close)(struct sl_wire *wire); /* takes NULL */

    /* Begins to dial place number n of an address. -ENODEV: it has no such place for this worker.
     * Other codes: this place cannot be dialed now. */
    int (*dial)(struct sl_wire *wire, const struct sl_wireup_addr *to, unsigned n,
                struct sl_pipe **out);
    /* One that was dialed from elsewhere, added to set. -EAGAIN: none waits. */
    int (*accept)(struct sl_wire *wire, struct sl_pending_set *set, struct sl_pending *pending,
                  uint64_t now_ns, struct sl_pipe **out);

    /* How many bytes went, at least 1; -EAGAIN: none now; else the pipe is of no use any more. */
    ssize_t (*send)(struct sl_pipe *pipe, const void *bytes, size_t len);
    ssize_t (*recv)(struct sl_pipe *pipe, void *bytes, size_t len); /* 0: its other end closed */
    void (*hang_up)(struct sl_pipe *pipe);
    const char *(*to)(const struct sl_pipe *pipe); /* its other end, for a sentence */
    int (*fd)(const struct sl_pipe *pipe);         /* -1: there is none to poll */

    int (*random)(struct sl_wire *wire, void *out, size_t len);

    /* The descriptors that tell of new pipes: fills up to cap, returns how many. */
    unsigned (*listeners)(const struct sl_wire *wire, struct pollfd *out, unsigned cap);
};

extern const struct sl_wire_ops sl_wire_sockets;

/* ---- wire-up ---- */

struct sl_wireup_hello;

/* The owner's callbacks. All calls come from sl_wireup_connect() and _progress(). */
struct sl_wireup_owner {
    void *arg;
    uint32_t rank, size;
    uint64_t group; /* hash of what both ends must have in common; another one is refused */
    const struct sl_wireup_addr *(*addr)(void *arg, uint32_t peer);
    /* The transports by which this rank may reach that one, a bit each by preference: bit 0 is
     * tried first. Numbers mean the same at both ends. */
    uint32_t (*candidates)(void *arg, uint32_t peer);
    /* An endpoint to that rank is up already. */
    bool (*connected)(void *arg, uint32_t peer);
    const char *(*name)(void *arg, unsigned transport);
    int (*ep_create)(void *arg, unsigned transport, uint32_t peer, struct sl_ep **out);
    /* The endpoint is connected on both sides, and the owner's from now on. */
    void (*up)(void *arg, uint32_t peer, struct sl_ep *ep);
    /* No transport connects the two: -EHOSTUNREACH, -ENOMEM, -ECONNREFUSED (nothing listens at its
     * address: its process has ended), -ETIMEDOUT, -EPROTO, -EACCES (it has another secret). why is
     * borrowed. */
    void (*failed)(void *arg, uint32_t peer, int err, const char *why);

    /* ---- connections that are not by rank: with awaited, all of them. rank is UINT32_MAX, a peer
     * is the owner's number of one connection, and connected() is not called ---- */

    /* Fills in from, to and group of the hello to that peer; their meaning is up to the owner. */
    void (*greet)(void *arg, uint32_t peer, struct sl_wireup_hello *hello);
    /* Its sender has proved that it knows this address. *peer is the connection's number until
     * up(), failed() or left(). -ECONNREFUSED: it is not awaited; -ENOMEM. */
    int (*awaited)(void *arg, const struct sl_wireup_hello *hello, uint32_t *peer);
    void (*left)(void *arg, uint32_t peer); /* an awaited one hung up, or stopped in the middle */
    /* Its sender, at that place, says that it has another secret. That proves nothing. */
    void (*stranger)(void *arg, const struct sl_wireup_hello *hello, const char *at);
    /* Which of these is offered next. */
    unsigned (*prefer)(void *arg, uint32_t transports);
};

struct sl_wireup;

/* owner is copied. Listens; *addr is for peers. An id that it has, of a wire-up that was closed,
 * stays; zeros get one. */
int sl_wireup_open(struct sl_worker *worker, const struct sl_wire_ops *ops, bool one_host,
                   const struct sl_wireup_owner *owner, struct sl_wireup_addr *addr,
                   struct sl_wireup **out);
void sl_wireup_close(struct sl_wireup *wireup); /* takes NULL; drops what is under way */

/* An endpoint to that peer is needed; does nothing if one is under way. With patient set, a peer
 * that does not answer yet (it computes) is waited for without a limit: the operation that needs it
 * has one. */
int sl_wireup_connect(struct sl_wireup *wireup, uint32_t peer, bool patient);

/* Accepts, dials, listens to peers. Does nothing when it is too early to poll. Returns how much
 * moved. */
unsigned sl_wireup_progress(struct sl_wireup *wireup, uint64_t now_ns);

/* The endpoint was lost while its connection was under way: the handler's down() came. */
void sl_wireup_lost(struct sl_wireup *wireup, uint32_t peer, const char *why);

/* An awaited connection whose endpoint is up on both sides becomes one in this call, which says the
 * last word; never before it. -EAGAIN: it is not that far. 0: up() has come or will; or left(). */
int sl_wireup_finish(struct sl_wireup *wireup, uint32_t peer);

/* The connection under way is of no use any more. Its owner hears nothing. */
void sl_wireup_drop(struct sl_wireup *wireup, uint32_t peer);

/* Where the other end of a connection under way is, for a sentence; "": it is not known. */
const char *sl_wireup_at(const struct sl_wireup *wireup, uint32_t peer);

/* Connections under way. */
unsigned sl_wireup_busy(const struct sl_wireup *wireup);

/* Descriptors to sleep on: fills up to cap and returns how many there are, maybe more than cap. */
unsigned sl_wireup_fds(const struct sl_wireup *wireup, struct pollfd *out, unsigned cap);

#endif
