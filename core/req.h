/* SPDX-License-Identifier: Apache-2.0 */
/* Everything asynchronous ends in a request, exactly once. */
#ifndef SL_CORE_REQ_H
#define SL_CORE_REQ_H

#include <stdint.h>

/* sl_req.status while the operation is under way. */
#define SL_PENDING 1

/* A place in an intrusive, circular, doubly linked list (core/list.h). */
struct sl_node {
    struct sl_node *next, *prev;
};

struct sl_req {
    int status;                    /* SL_PENDING, then 0 or a negative errno */
    uint64_t len;                  /* bytes that moved; meaningful once status is 0 */
    uint64_t tag;                  /* of a recv that is done: the tag its sender gave */
    void (*done)(struct sl_req *); /* from the worker's progress; may post, never waits; or NULL */
    void *arg;                     /* the caller's */
    struct sl_node link;           /* the callee's while pending, the caller's after */
};

/* Ends a request: sets its status and calls done. For transports, from progress. */
static inline void sl_req_end(struct sl_req *req, int status)
{
    req->status = status;
    if (req->done != 0)
        req->done(req);
}

#endif
