/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where ranks are in the network, and which parts of it a message from one to another passes: the
 * sender, the receiver, the pair, their hosts, leaves, rail, plane and the switches above.
 *
 * An element is a part that may be slow: it covers the cells of the matrix whose messages pass it.
 * Faults are lifted from pairs to the part that covers them all (ambiguity.h).
 */
#ifndef SL_MONITOR_DIAGNOSIS_LIFT_H
#define SL_MONITOR_DIAGNOSIS_LIFT_H

#include "monitor/diagnosis/matrix.h"
#include "monitor/diagnosis/verdict.h"

#define SL_PLACE_NONE UINT32_MAX

enum sl_family { SL_FAMILY_HOST, SL_FAMILY_LEAF, SL_FAMILY_RAIL, SL_FAMILY_PLANE, SL_FAMILIES };

/* A port is a rank on a path: rank * path_count + path. */
struct sl_places {
    const struct sl_job *job;
    const struct sl_matrix *matrix;
    uint32_t path_count;
    uint32_t *group[SL_FAMILIES]; /* by port: a number, or SL_PLACE_NONE; NULL: none is known */
    uint32_t *names[SL_FAMILIES]; /* by number: texts */
    uint32_t counts[SL_FAMILIES];
    const struct sl_job_route **routes; /* by src, dst */
    size_t route_count;
};

/* Hosts are those of the job's ranks; leaves, rails and planes those of its ports (the host's, and
 * where a path names a device of the host, the device's). Where no port tells a rail, each path is
 * one. 0 or -ENOMEM; sl_places_fini() in any case. */
int sl_places_find(const struct sl_job *job, const struct sl_matrix *matrix,
                   struct sl_places *places);
void sl_places_fini(struct sl_places *places);
/* Of the family, where the rank's port on the path is. */
uint32_t sl_place_of(const struct sl_places *places, enum sl_family family, uint32_t rank,
                     uint32_t path);

enum sl_element_kind {
    SL_ELEMENT_LINK, /* from rank a to rank b, on all paths */
    SL_ELEMENT_LANE, /* from rank a to rank b on one path of several */
    SL_ELEMENT_TX,   /* what rank a sends */
    SL_ELEMENT_RX,
    SL_ELEMENT_NODE,   /* both */
    SL_ELEMENT_NIC_TX, /* what rank a sends on one path of several */
    SL_ELEMENT_NIC_RX,
    SL_ELEMENT_NIC,
    SL_ELEMENT_HOST_TX, /* of host a: what leaves it */
    SL_ELEMENT_HOST_RX,
    SL_ELEMENT_HOST,
    SL_ELEMENT_LEAF_TX, /* of leaf a: what leaves it upwards */
    SL_ELEMENT_LEAF_RX,
    SL_ELEMENT_LEAF_UP, /* both */
    SL_ELEMENT_LEAF,    /* all that passes it */
    SL_ELEMENT_RAIL,
    SL_ELEMENT_PLANE,
    SL_ELEMENT_SPINE, /* a switch on the way: a is its name's text */
    SL_ELEMENT_KINDS
};

struct sl_element {
    uint8_t kind;
    uint32_t a, b; /* b: of LINK and LANE the receiver, else 0 */
    uint32_t path; /* of LANE and NIC: of the matrix's; else 0 */
};

#define SL_ELEMENTS_MAX 32 /* that cover a cell */

/* All that a message passes: how many. Those that cannot be seen apart from a smaller part (a host
 * of one rank, a path where there is only one) are left to sl_ambiguity_find(). */
unsigned sl_elements_of(const struct sl_places *places, uint32_t src, uint32_t dst, uint32_t path,
                        struct sl_element out[SL_ELEMENTS_MAX]);
bool sl_element_covers(const struct sl_places *places, const struct sl_element *element,
                       uint32_t src, uint32_t dst, uint32_t path);
bool sl_element_is(const struct sl_element *a, const struct sl_element *b);
/* How likely it is to be the one, beside others: a weight. */
double sl_element_prior(const struct sl_element *element);
enum sl_verdict_class sl_element_class(const struct sl_element *element);
struct sl_object sl_element_object(const struct sl_places *places,
                                   const struct sl_element *element);
/* "rank 3 as a sender", "the uplinks of leaf leaf4, outwards". */
void sl_element_text(const struct sl_places *places, const struct sl_element *element, char *out,
                     size_t cap);

#endif
