/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/cluster/collect.h"

#include "core/dl.h"
#include "core/err.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define MS UINT64_C(1000000)
#define BACKOFF_MAX_MS 30000
#define EVENTS 64

/* Found when somebody is to be asked: an agent that is no instance does not carry it. */
struct curl_table {
    CURL *(*easy_init)(void);
    CURLcode (*easy_setopt)(CURL *, CURLoption, ...);
    CURLcode (*easy_getinfo)(CURL *, CURLINFO, ...);
    void (*easy_cleanup)(CURL *);
    const char *(*easy_strerror)(CURLcode);
    CURLM *(*multi_init)(void);
    CURLMcode (*multi_cleanup)(CURLM *);
    CURLMcode (*multi_setopt)(CURLM *, CURLMoption, ...);
    CURLMcode (*multi_add_handle)(CURLM *, CURL *);
    CURLMcode (*multi_remove_handle)(CURLM *, CURL *);
    CURLMcode (*multi_socket_action)(CURLM *, curl_socket_t, int, int *);
    CURLMsg *(*multi_info_read)(CURLM *, int *);
};

static const struct sl_dl_symbol symbols[] = {
#define SYMBOL(name)                                                                               \
    {                                                                                              \
        "curl_" #name, offsetof(struct curl_table, name), false                                    \
    }
    SYMBOL(easy_init),           SYMBOL(easy_setopt),         SYMBOL(easy_getinfo),
    SYMBOL(easy_cleanup),        SYMBOL(easy_strerror),       SYMBOL(multi_init),
    SYMBOL(multi_cleanup),       SYMBOL(multi_setopt),        SYMBOL(multi_add_handle),
    SYMBOL(multi_remove_handle), SYMBOL(multi_socket_action), SYMBOL(multi_info_read),
#undef SYMBOL
};

struct agent {
    struct sl_collect *collect;
    struct sl_member member;
    char node[SL_OBSERVE_NODE]; /* that it said it is; before: made of the host's name */
    uint64_t next_ns;
    unsigned failures; /* in a row */
    CURL *easy;        /* a question under way, or NULL */
    char *body;
    size_t len, cap;
};

struct sl_collect {
    const struct sl_mon_config *config;
    struct sl_cluster_model *model;
    struct curl_table curl;
    CURLM *multi; /* NULL: nobody was asked yet */
    int epoll_fd;
    struct agent **agents;           /* by host and port */
    unsigned count, under_way, next; /* next: who is looked at first */
    uint64_t timer_ns;               /* libcurl wants to be called then; 0: not */
    uint64_t now_ns;
    uint64_t answers, failed;
};

/* ---- libcurl's descriptors and times ---- */

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *known)
{
    struct sl_collect *collect = arg;
    struct epoll_event event = {.data.fd = fd};

    (void)easy;
    (void)known;
    event.events = (what & CURL_POLL_IN ? (uint32_t)EPOLLIN : 0) |
                   (what & CURL_POLL_OUT ? (uint32_t)EPOLLOUT : 0);
    if (what == CURL_POLL_REMOVE)
        (void)epoll_ctl(collect->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    else if (epoll_ctl(collect->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        (void)epoll_ctl(collect->epoll_fd, EPOLL_CTL_MOD, fd, &event);
    return 0;
}

static int on_timer(CURLM *multi, long ms, void *arg)
{
    struct sl_collect *collect = arg;

    (void)multi;
    collect->timer_ns = ms < 0 ? 0 : collect->now_ns + (uint64_t)ms * MS + 1;
    return 0;
}

static int open_curl(struct sl_collect *collect)
{
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", NULL};
    int err;

    if (collect->multi != NULL)
        return 0;
    err = sl_dl_open(names, symbols, SL_ARRAY_LEN(symbols), &collect->curl);
    if (err != 0)
        return err;
    collect->multi = collect->curl.multi_init();
    if (collect->multi == NULL)
        return sl_fail(-ENOMEM, "libcurl cannot be begun");
    collect->curl.multi_setopt(collect->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    collect->curl.multi_setopt(collect->multi, CURLMOPT_SOCKETDATA, collect);
    collect->curl.multi_setopt(collect->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    collect->curl.multi_setopt(collect->multi, CURLMOPT_TIMERDATA, collect);
    collect->curl.multi_setopt(collect->multi, CURLMOPT_MAXCONNECTS, (long)SL_COLLECT_AT_ONCE);
    return 0;
}

/* ---- an answer ---- */

static struct sl_cluster_node *node_of(const struct agent *agent)
{
    struct sl_cluster_node *node = sl_cluster_node(agent->collect->model, agent->node, true);

    if (node == NULL)
        return NULL;
    if (node->heard_ns == 0)
        node->heard_ns = agent->collect->now_ns; /* it has its time to answer first */
    snprintf(node->where, sizeof(node->where),
             strchr(agent->member.host, ':') != NULL ? "[%.80s]:%u" : "%.80s:%u",
             agent->member.host, agent->member.port);
    return node;
}

static void fail(struct agent *agent, const char *why)
{
    uint64_t wait_ms = (uint64_t)agent->collect->config->cluster_period_ms;
    struct sl_cluster_node *node = node_of(agent);

    for (unsigned i = 0; i < agent->failures && wait_ms < BACKOFF_MAX_MS; i++)
        wait_ms *= 2;
    if (agent->failures < 16)
        agent->failures++;
    agent->collect->failed++;
    agent->next_ns =
        agent->collect->now_ns + (wait_ms < BACKOFF_MAX_MS ? wait_ms : BACKOFF_MAX_MS) * MS;
    if (node != NULL)
        snprintf(node->why, sizeof(node->why), "its agent at %s: %s", node->where, why);
}

/* The name that it gives itself is its node's from now on. */
static void rename_node(struct agent *agent, const char *name)
{
    struct sl_cluster_node *old;

    if (strcmp(agent->node, name) == 0)
        return;
    old = sl_cluster_node(agent->collect->model, agent->node, false);
    if (old != NULL && old->obs[SL_OBSERVE_STATUS].body == NULL)
        sl_cluster_forget(agent->collect->model, agent->node);
    snprintf(agent->node, sizeof(agent->node), "%s", name);
}

static void take(struct agent *agent)
{
    struct sl_collect *collect = agent->collect;
    struct sl_cluster_node *node = NULL;
    int err = sl_cluster_take(collect->model, agent->body, agent->len, NULL, &node);

    if (err < 0) {
        fail(agent, sluice_last_error());
        return;
    }
    rename_node(agent, node->name);
    node = node_of(agent);
    if (node != NULL) {
        node->heard_ns = collect->now_ns;
        node->why[0] = '\0';
    }
    agent->failures = 0;
    collect->answers++;
}

static void end(struct agent *agent)
{
    struct sl_collect *collect = agent->collect;

    collect->curl.multi_remove_handle(collect->multi, agent->easy);
    collect->curl.easy_cleanup(agent->easy);
    agent->easy = NULL;
    collect->under_way--;
}

static void finish(struct agent *agent, CURLcode code)
{
    struct sl_collect *collect = agent->collect;
    long status = 0;
    char why[96];

    collect->curl.easy_getinfo(agent->easy, CURLINFO_RESPONSE_CODE, &status);
    end(agent);
    if (code == CURLE_OPERATION_TIMEDOUT)
        snprintf(why, sizeof(why), "no answer within %lld ms",
                 (long long)collect->config->cluster_timeout_ms);
    else if (code == CURLE_COULDNT_CONNECT)
        snprintf(why, sizeof(why), "nobody listens there");
    else if (code != CURLE_OK)
        snprintf(why, sizeof(why), "%s", collect->curl.easy_strerror(code));
    else if (status != 200)
        snprintf(why, sizeof(why), "it answers %ld%s", status,
                 status == 404 ? ": that agent is too old, or something else" : "");
    if (code != CURLE_OK || status != 200)
        fail(agent, why);
    else
        take(agent);
    free(agent->body);
    agent->body = NULL;
    agent->len = agent->cap = 0;
}

static void take_answers(struct sl_collect *collect)
{
    CURLMsg *message;
    int left;

    while ((message = collect->curl.multi_info_read(collect->multi, &left)) != NULL) {
        CURLcode code = message->data.result;
        void *agent = NULL;

        if (message->msg != CURLMSG_DONE)
            continue;
        collect->curl.easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &agent);
        finish(agent, code);
    }
}

/* ---- a question ---- */

static size_t on_body(char *data, size_t size, size_t count, void *arg)
{
    struct agent *agent = arg;
    size_t len = size * count, cap = agent->cap == 0 ? 8192 : agent->cap;
    char *more;

    if (agent->len + len > SL_CLUSTER_MESSAGE_MAX)
        return 0; /* libcurl ends it */
    while (cap < agent->len + len)
        cap *= 2;
    if (cap > agent->cap) {
        more = realloc(agent->body, cap);
        if (more == NULL)
            return 0;
        agent->body = more;
        agent->cap = cap;
    }
    memcpy(agent->body + agent->len, data, len);
    agent->len += len;
    return len;
}

static void set_options(struct agent *agent)
{
    CURLcode (*set)(CURL *, CURLoption, ...) = agent->collect->curl.easy_setopt;
    bool is_six = strchr(agent->member.host, ':') != NULL;
    char url[SL_MEMBER_HOST + 48];

    snprintf(url, sizeof(url),
             is_six ? "http://[%s]:%u/v1/observation" : "http://%s:%u/v1/observation",
             agent->member.host, agent->member.port);
    set(agent->easy, CURLOPT_URL, url);
    set(agent->easy, CURLOPT_PRIVATE, agent);
    set(agent->easy, CURLOPT_NOSIGNAL, 1L);
    set(agent->easy, CURLOPT_PROXY, "");
    set(agent->easy, CURLOPT_FOLLOWLOCATION, 0L);
    set(agent->easy, CURLOPT_TIMEOUT_MS, (long)agent->collect->config->cluster_timeout_ms);
    set(agent->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)agent->collect->config->cluster_timeout_ms);
    set(agent->easy, CURLOPT_WRITEFUNCTION, on_body);
    set(agent->easy, CURLOPT_WRITEDATA, agent);
    set(agent->easy, CURLOPT_USERAGENT, "sluiced");
}

static void ask(struct agent *agent)
{
    struct sl_collect *collect = agent->collect;

    agent->next_ns = collect->now_ns + (uint64_t)collect->config->cluster_period_ms * MS;
    agent->easy = collect->curl.easy_init();
    if (agent->easy == NULL)
        return;
    set_options(agent);
    collect->under_way++;
    if (collect->curl.multi_add_handle(collect->multi, agent->easy) != CURLM_OK) {
        collect->curl.easy_cleanup(agent->easy);
        agent->easy = NULL;
        collect->under_way--;
    }
}

/* From where it stopped last: when there are more than may be asked at once, all have their
 * turn. */
static void ask_all(struct sl_collect *collect)
{
    for (unsigned i = 0; i < collect->count && collect->under_way < SL_COLLECT_AT_ONCE; i++) {
        struct agent *agent = collect->agents[collect->next % collect->count];

        collect->next = (collect->next + 1) % collect->count;
        if (agent->easy == NULL && collect->now_ns >= agent->next_ns)
            ask(agent);
    }
}

/* ---- who is asked ---- */

static void free_agent(struct agent *agent)
{
    if (agent->easy != NULL)
        end(agent);
    free(agent->body);
    free(agent);
}

static int order_of(const struct agent *agent, const struct sl_member *member)
{
    int order = strcmp(agent->member.host, member->host);

    return order != 0 ? order : (int)agent->member.port - (int)member->port;
}

static struct agent *new_agent(struct sl_collect *collect, const struct sl_member *member,
                               unsigned place, unsigned count)
{
    struct agent *agent = calloc(1, sizeof(*agent));
    uint64_t period = (uint64_t)collect->config->cluster_period_ms * MS;

    if (agent == NULL)
        return NULL;
    agent->collect = collect;
    agent->member = *member;
    /* Until it says who it is. */
    if (member->port == (uint16_t)collect->config->cluster_port)
        snprintf(agent->node, sizeof(agent->node), "%.64s", member->host);
    else
        snprintf(agent->node, sizeof(agent->node), "%.58s-%u", member->host, member->port);
    for (char *at = agent->node; *at != '\0'; at++)
        if (strchr(":%", *at) != NULL)
            *at = at == agent->node ? 'x' : '-';
    /* Over a period, not all at its begin. */
    agent->next_ns = collect->now_ns + period * place / (count + 1);
    (void)node_of(agent);
    return agent;
}

static bool names_node(const struct sl_collect *collect, const char *node)
{
    for (unsigned i = 0; i < collect->count; i++)
        if (strcmp(collect->agents[i]->node, node) == 0)
            return true;
    return false;
}

int sl_collect_set(struct sl_collect *collect, const struct sl_members_list *members,
                   uint64_t now_ns)
{
    struct agent **agents = calloc(members->count + 1, sizeof(struct agent *)), **old;
    unsigned at = 0, count = 0, old_count = collect->count;
    int err = members->count > 0 ? open_curl(collect) : 0;

    if (agents == NULL || err != 0) {
        free(agents);
        return err != 0 ? err : sl_fail(-ENOMEM, "no memory for members");
    }
    collect->now_ns = now_ns;
    old = collect->agents;
    for (unsigned i = 0; i < members->count; i++) {
        struct agent *agent;

        while (at < old_count && order_of(old[at], &members->list[i]) < 0)
            at++;
        if (at < old_count && order_of(old[at], &members->list[i]) == 0) {
            agent = old[at];
            old[at++] = NULL;
        } else {
            agent = new_agent(collect, &members->list[i], i, members->count);
        }
        if (agent != NULL)
            agents[count++] = agent;
    }
    collect->agents = agents;
    collect->count = count;
    for (unsigned i = 0; i < old_count; i++)
        if (old[i] != NULL) {
            if (!names_node(collect, old[i]->node))
                sl_cluster_forget(collect->model, old[i]->node);
            free_agent(old[i]);
        }
    free(old);
    return 0;
}

/* ---- the owner's calls ---- */

int sl_collect_new(const struct sl_mon_config *config, struct sl_cluster_model *model,
                   struct sl_collect **out)
{
    struct sl_collect *collect = calloc(1, sizeof(*collect));

    if (collect == NULL)
        return sl_fail(-ENOMEM, "no memory to ask agents");
    collect->config = config;
    collect->model = model;
    collect->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (collect->epoll_fd < 0) {
        int err = sl_fail(-errno, "epoll: %s", sluice_strerror(-errno));

        free(collect);
        return err;
    }
    *out = collect;
    return 0;
}

void sl_collect_free(struct sl_collect *collect)
{
    if (collect == NULL)
        return;
    for (unsigned i = 0; i < collect->count; i++)
        free_agent(collect->agents[i]);
    free(collect->agents);
    if (collect->multi != NULL)
        collect->curl.multi_cleanup(collect->multi);
    close(collect->epoll_fd);
    free(collect);
}

int sl_collect_fd(const struct sl_collect *collect)
{
    return collect->epoll_fd;
}

int sl_collect_wait_ms(struct sl_collect *collect, uint64_t now_ns)
{
    uint64_t due = collect->timer_ns != 0 ? collect->timer_ns : UINT64_MAX;

    if (collect->under_way < SL_COLLECT_AT_ONCE)
        for (unsigned i = 0; i < collect->count; i++)
            if (collect->agents[i]->easy == NULL && collect->agents[i]->next_ns < due)
                due = collect->agents[i]->next_ns;
    if (due == UINT64_MAX)
        return -1;
    return due <= now_ns ? 0 : (int)((due - now_ns) / MS < 60000 ? (due - now_ns) / MS + 1 : 60000);
}

void sl_collect_turn(struct sl_collect *collect, uint64_t now_ns)
{
    struct epoll_event events[EVENTS];
    int running, count;

    collect->now_ns = now_ns;
    if (collect->multi == NULL)
        return;
    ask_all(collect);
    count = epoll_wait(collect->epoll_fd, events, EVENTS, 0);
    for (int i = 0; i < count; i++)
        collect->curl.multi_socket_action(
            collect->multi, events[i].data.fd,
            (events[i].events & EPOLLIN ? CURL_CSELECT_IN : 0) |
                (events[i].events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                (events[i].events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0),
            &running);
    if (collect->timer_ns != 0 && now_ns >= collect->timer_ns) {
        collect->timer_ns = 0;
        collect->curl.multi_socket_action(collect->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
    take_answers(collect);
}

struct sl_collect_counts sl_collect_counts(const struct sl_collect *collect)
{
    struct sl_collect_counts out = {.agents = collect->count,
                                    .under_way = collect->under_way,
                                    .answers = collect->answers,
                                    .failures = collect->failed};

    for (unsigned i = 0; i < collect->count; i++)
        out.failing += collect->agents[i]->failures > 0;
    return out;
}
