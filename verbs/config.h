/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of RDMA: SLUICE_VERBS_*. */
#ifndef SL_VERBS_CONFIG_H
#define SL_VERBS_CONFIG_H

#include "core/config.h"
#include "multipath/config.h"

/* In the order of their rows' choices. */
enum sl_verbs_gid_family { SL_VERBS_FAMILY_ANY, SL_VERBS_FAMILY_IPV4, SL_VERBS_FAMILY_IPV6 };
enum sl_verbs_locality { SL_VERBS_LOCALITY_AUTO, SL_VERBS_LOCALITY_OFF, SL_VERBS_LOCALITY_NEAR };
enum sl_verbs_static_rate { SL_VERBS_RATE_AUTO, SL_VERBS_RATE_OFF };
enum sl_verbs_ece { SL_VERBS_ECE_AUTO, SL_VERBS_ECE_OFF };
enum sl_verbs_keys { SL_VERBS_KEYS_REGION, SL_VERBS_KEYS_WINDOW };

struct sl_verbs_config {
    struct sl_mp_config mp;
    char devices[SL_TEXT_MAX], pkey[SL_TEXT_MAX];
    enum sl_verbs_gid_family gid_family;
    enum sl_verbs_locality locality;
    enum sl_verbs_static_rate static_rate;
    enum sl_verbs_ece ece;
    enum sl_verbs_keys keys;
    int64_t gid_index, traffic_class, service_level, mtu;
    int64_t timeout, retry_count, rnr_timer;
    int64_t relaxed_ordering, fork, srq, comp_vector, thread_domain;
};

SL_CONFIG_SECTION(verbs)

/* The paths that they ask for. config is borrowed as long as these are used. */
struct sl_mp_path_wishes sl_verbs_path_wishes(const struct sl_config *config);

struct sl_device;

/* sl_transport_ops.prefer */
void sl_verbs_prefer(struct sl_config *config, const struct sl_device *dev, int traffic_class);

#endif
