/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: made over gloo's own allgather, found by context, torn down when that is gone. */
#include "tools/preload/gloo_group.hh"

#include <cerrno>
#include <climits>
#include <cstring>
#include <unordered_map>

#include <unistd.h>

namespace sl_gloo
{

constexpr uint32_t SETUP_TAG = 0x51u << 24 | 0x1ce; /* programs count from 0 */
constexpr int64_t FOREVER_MS = INT_MAX;             /* gloo writes 0 */

const context_view &view(const context_ref &context)
{
    const char *at = reinterpret_cast<const char *>(context.get());

    return *reinterpret_cast<const context_view *>(at +
                                                   (sl_gloo_here.has_table ? sizeof(void *) : 0));
}

static int64_t to_ms(duration timeout)
{
    int64_t ms = timeout.count();

    return ms <= 0 || ms > FOREVER_MS ? FOREVER_MS : ms;
}

/* ---- life ---- */

group::group(const context_ref &context)
    : rank(view(context).rank), size(view(context).size), owner(context), pid(getpid())
{
}

bool group::is_of(const context_ref &context) const
{
    return !owner.owner_before(context) && !context.owner_before(owner);
}

bool group::is_ours() const
{
    return pid == getpid();
}

void group::destroy_comms()
{
    for (lane &lane : lanes) {
        sluice_comm_destroy(lane.comm);
        lane.comm = nullptr;
    }
    sluice_comm_destroy(control);
    control = nullptr;
}

group::~group()
{
    if (is_ours())
        destroy_comms();
}

void group::close()
{
    std::unique_lock<std::mutex> guard(lock, std::try_to_lock);
    bool idle = guard.owns_lock() && is_ours() && !reading;

    for (lane &lane : lanes)
        idle = idle && !lane.busy;
    if (!idle) /* a thread is inside: the process ends, and its peers learn that from the kernel */
        return;
    destroy_comms();
    broken = "the process is ending";
}

/* ---- setting up ---- */

namespace
{

/* gloo's allgather, as an exchange of addresses. */
struct exchange {
    context_ref context;
    duration timeout;
    std::exception_ptr thrown;
};

int exchange_allgather(void *arg, const void *in, size_t len, void *out)
{
    exchange *x = static_cast<exchange *>(arg);
    auto create = reinterpret_cast<create_buffer_fn *>(sl_gloo_here.create_buffer);

    try {
        exchange_options options = {
            x->context,
            create(x->context.get(), const_cast<void *>(in), len),
            create(x->context.get(), out, len * static_cast<size_t>(view(x->context).size)),
            1,
            SETUP_TAG,
            x->timeout};

        sl_gloo_here.original[SL_GLOO_allgather](&options);
        return 0;
    } catch (...) {
        x->thrown = std::current_exception();
        return -ECONNRESET;
    }
}

} // namespace

void group::set_up(context_ref context, duration timeout)
{
    exchange x = {std::move(context), timeout, nullptr};
    int err = sl_gloo_here.original[SL_GLOO_allgather] == nullptr ? -ENOTSUP : 0;

    if (err == 0)
        err = sl_gloo_comm_create(rank, size, exchange_allgather, &x, to_ms(timeout), &control);
    for (unsigned i = 0; err == 0 && i < LANES; i++)
        err =
            sl_gloo_comm_create(rank, size, exchange_allgather, &x, to_ms(timeout), &lanes[i].comm);
    if (err != 0) {
        sl_gloo_note(sluice_last_error());
        destroy_comms();
    }
    state.store(err == 0 ? READY : NONE, std::memory_order_release);
    if (x.thrown)
        std::rethrow_exception(x.thrown);
}

bool group::ready(const context_ref &context, duration timeout)
{
    int now = state.load(std::memory_order_acquire);

    if (now == NEW) {
        std::lock_guard<std::mutex> guard(setting_up);

        if (state.load(std::memory_order_relaxed) == NEW)
            set_up(context, timeout);
        now = state.load(std::memory_order_relaxed);
    }
    return now == READY;
}

/* ---- the table ---- */

namespace
{

struct table {
    std::mutex lock;
    std::unordered_map<const context *, std::shared_ptr<group>> groups;
};

/* Lives until the process ends, whatever is torn down before. */
table &all_groups()
{
    static table *all = new table;

    return *all;
}

} // namespace

std::shared_ptr<group> group_of(const context_ref &context)
{
    table &all = all_groups();
    std::vector<std::shared_ptr<group>> gone; /* torn down without the lock */
    std::lock_guard<std::mutex> guard(all.lock);
    std::shared_ptr<group> &found = all.groups[context.get()];

    if (found && found->is_of(context))
        return found;
    if (found)
        gone.push_back(std::move(found));
    found = std::make_shared<group>(context);
    std::shared_ptr<group> made = found;

    for (auto it = all.groups.begin(); it != all.groups.end();) {
        if (it->second->is_over()) {
            gone.push_back(std::move(it->second));
            it = all.groups.erase(it);
        } else {
            ++it;
        }
    }
    return made;
}

} // namespace sl_gloo

extern "C" void sl_gloo_leave(void)
{
    sl_gloo::table &all = sl_gloo::all_groups();
    std::unique_lock<std::mutex> guard(all.lock, std::try_to_lock);

    if (!guard.owns_lock())
        return;
    for (auto &entry : all.groups)
        entry.second->close();
}
