/* SPDX-License-Identifier: Apache-2.0 */
/* Whose turn it is: rank 0 says, the others follow. */
#include "tools/preload/gloo_group.hh"

#include <cerrno>
#include <climits>

namespace sl_gloo
{

using deadline_t = std::chrono::steady_clock::time_point;

static duration bounded(duration timeout)
{
    return timeout.count() <= 0 || timeout.count() > INT_MAX ? duration(INT_MAX) : timeout;
}

/* With lock held. */
void group::check() const
{
    if (!broken.empty())
        throw gloo::IoException(broken);
}

/* With lock held. */
void group::break_down(const std::string &text)
{
    if (broken.empty()) {
        broken = text;
        sl_gloo_note(text.c_str());
        sluice_comm_abort(control); /* peers wait there, or in a lane */
        for (lane &lane : lanes)
            sluice_comm_abort(lane.comm);
    }
    moved.notify_all();
}

static enum sl_gloo_call call_of(uint64_t key)
{
    return static_cast<enum sl_gloo_call>(key >> 32);
}

std::string manner::text() const
{
    std::string text =
        std::to_string(elements) + " elements of " + std::to_string(element_size) + " bytes";

    if ((dtype | op) == 0)
        return text;
    return text + " (" + sluice_dtype_name(static_cast<enum sluice_dtype>(dtype)) + ", " +
           sluice_op_name(static_cast<enum sluice_op>(op)) + ")";
}

/* With lock held. What rank 0 called is not what this rank calls: no sum would be right. */
void group::refuse(uint64_t key, const manner &theirs, const manner &ours)
{
    break_down("[sluice] ranks disagree about gloo::" + std::string(sl_gloo_name(call_of(key))) +
               ": rank 0 has " + theirs.text() + ", rank " + std::to_string(rank) + " " +
               ours.text());
    check();
}

void group::fail(int err, duration timeout, const std::string &called)
{
    std::string text = "[sluice] ";

    if (!called.empty())
        text += called + ": ";
    if (err == -ETIMEDOUT)
        text += "Timed out waiting " + std::to_string(timeout.count()) + "ms: ";
    text += sluice_last_error();
    std::lock_guard<std::mutex> guard(lock);

    break_down(text);
    throw gloo::IoException(broken);
}

void group::abandon()
{
    std::lock_guard<std::mutex> guard(lock);

    break_down("[sluice] an earlier call of this context was left by an exception");
}

void group::wait(std::unique_lock<std::mutex> &guard, deadline_t deadline, duration timeout)
{
    if (moved.wait_until(guard, deadline) == std::cv_status::timeout)
        break_down(
            "[sluice] Timed out waiting " + std::to_string(timeout.count()) +
            "ms for a collective's turn: another one of this context has not ended, or rank 0 has "
            "not called it");
}

lane &group::say(uint64_t key, duration timeout, manner &how)
{
    deadline_t deadline = std::chrono::steady_clock::now() + bounded(timeout);
    std::lock_guard<std::mutex> one(saying);
    std::unique_lock<std::mutex> guard(lock);
    unsigned at = 0;

    for (;;) {
        check();
        for (at = 0; at < LANES && lanes[at].busy; at++)
            ;
        if (at < LANES)
            break;
        wait(guard, deadline, timeout);
    }
    lane &mine = lanes[at];
    notice said = {key, mine.issued++, how, at, 0};

    mine.busy = true;
    guard.unlock();
    sl_gloo_comm_timeout(control, bounded(timeout).count());
    int err = sluice_broadcast(control, &said, &said, sizeof(said), SLUICE_U8, 0, nullptr);

    if (err != 0) {
        leave(mine);
        fail(err, timeout);
    }
    return mine;
}

/* With lock held: the first turn of key that rank 0 gave, when it has come. */
bool group::find_turn(uint64_t key, notice &out)
{
    for (auto it = notices.begin(); it != notices.end(); ++it) {
        if (it->key != key)
            continue;
        const lane &its = lanes[it->lane];

        if (its.busy || its.ended != it->turn)
            return false;
        out = *it;
        notices.erase(it);
        return true;
    }
    return false;
}

/* What is shown of a call that waits, until it has its turn or fails. */
struct showing {
    lane *at = nullptr;
    int place = -1;

    bool is_on() const
    {
        return at != nullptr && at->shown == place;
    }
    ~showing()
    {
        int mine = place;

        if (at != nullptr && at->shown.compare_exchange_strong(mine, -1))
            sl_gloo_hide(place);
    }
};

/* With lock held: rank 0 is in a call on a lane that no thread of this rank has come for, while one
 * waits with another call. To who looks at the job it is the lane's next one here: by the engine's
 * own calls it would see ranks that wait in a circle, and not why. */
void group::show(uint64_t key, showing &out)
{
    for (const notice &n : notices) {
        lane &its = lanes[n.lane];

        if (n.key == key || its.busy || its.ended != n.turn || its.shown >= 0)
            continue;
        out.at = &its;
        out.place = sl_gloo_show(its.comm, call_of(key));
        its.shown = out.place;
        return;
    }
}

/* With lock held, but for the reading itself. */
void group::read_notice(std::unique_lock<std::mutex> &guard, duration timeout)
{
    notice next;

    reading = true;
    guard.unlock();
    sl_gloo_comm_timeout(control, bounded(timeout).count());
    int err = sluice_broadcast(control, nullptr, &next, sizeof(next), SLUICE_U8, 0, nullptr);

    guard.lock();
    reading = false;
    if (err == 0 && next.lane < LANES) {
        notices.push_back(next);
        moved.notify_all();
        return;
    }
    guard.unlock();
    fail(err != 0 ? err : -EPROTO, timeout);
}

lane &group::follow(uint64_t key, duration timeout, manner &how)
{
    deadline_t deadline = std::chrono::steady_clock::now() + bounded(timeout);
    std::unique_lock<std::mutex> guard(lock);
    showing shown;
    notice mine;

    for (;;) {
        check();
        if (find_turn(key, mine))
            break;
        bool known = false;

        if (!shown.is_on())
            show(key, shown);

        for (const notice &n : notices)
            known = known || n.key == key;
        if (known || reading)
            wait(guard, deadline, timeout);
        else
            read_notice(guard, timeout);
    }
    if (!how.fits(mine.manner))
        refuse(key, mine.manner, how);
    how = mine.manner;
    sl_gloo_hide(lanes[mine.lane].shown.exchange(-1));
    lanes[mine.lane].busy = true;
    return lanes[mine.lane];
}

lane &group::enter(call_key key, duration timeout, manner &how)
{
    uint64_t number = static_cast<uint64_t>(key.call) << 32 | key.tag;
    lane &mine = rank == 0 ? say(number, timeout, how) : follow(number, timeout, how);

    sl_gloo_comm_timeout(mine.comm, bounded(timeout).count());
    return mine;
}

void group::leave(lane &mine)
{
    std::lock_guard<std::mutex> guard(lock);

    mine.busy = false;
    mine.ended++;
    moved.notify_all();
}

} // namespace sl_gloo
