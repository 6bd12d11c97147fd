/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ranks of a gloo context, and the order in which the engine runs their calls.
 *
 * gloo matches calls by tag: threads of a rank may make several at once on one context, and every
 * rank in an order of its own (PyTorch's process groups have two such threads). The engine matches
 * by order. So rank 0 says which call is next, as its threads come, on a communicator that serves
 * nothing else, and the others follow:
 *
 *     rank 0    a thread comes with call K: takes an idle lane L, says (K, L, turn n of L), runs K
 *               on L
 *     others    a thread comes with call K: unless K's turn is known already, it reads what rank 0
 *               says, for itself and for the other threads, until that is K; waits until turns
 *               before n of L have ended
 *
 * A lane is a communicator; with several of them, calls of several threads overlap as gloo's own
 * do. A call waits for nothing but calls that rank 0 made earlier or makes at the same time, which
 * every rank makes too, as long as it has as many threads for them as rank 0 has; those of a
 * process group do.
 */
#ifndef SL_PRELOAD_GLOO_GROUP_HH
#define SL_PRELOAD_GLOO_GROUP_HH

#include "tools/preload/gloo_abi.hh"
#include "tools/preload/gloo_bridge.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <string>

namespace sl_gloo
{

constexpr unsigned LANES = 2; /* what PyTorch has threads for */

/* How a call is run: rank 0's choice. Travels. */
struct manner {
    uint8_t chain = 0; /* 1: in gloo's order of additions, by gloo's own function */
    uint8_t dtype = 0, op = 0;
    uint8_t element_size = 0; /* of a reduction: what every rank must say alike */
    uint32_t reserved = 0;
    uint64_t elements = 0;

    manner() = default;
    manner(uint8_t c, uint8_t d, uint8_t o) : chain(c), dtype(d), op(o)
    {
    }
    /* Type and operator of a function that was not recognised are 0 and 0, as those of one that may
     * differ. */
    bool fits(const manner &other) const
    {
        bool known = (dtype | op) != 0 && (other.dtype | other.op) != 0;

        return elements == other.elements && element_size == other.element_size &&
               (!known || (dtype == other.dtype && op == other.op));
    }
    /* "1000 elements of 4 bytes (f32, sum)" */
    std::string text() const;
};

struct call_key {
    enum sl_gloo_call call;
    uint32_t tag;
};

/* What rank 0 says. */
struct notice {
    uint64_t key;
    uint64_t turn;
    struct manner manner;
    uint32_t lane;
    uint32_t reserved;
};
static_assert(sizeof(notice) == 40, "travels, with no holes that carry old memory");

struct lane {
    struct sluice_comm *comm = nullptr;
    uint64_t issued = 0; /* rank 0: turns given so far */
    uint64_t ended = 0;  /* turns that are over */
    bool busy = false;
    std::atomic<int> shown{-1}; /* place of the call that this rank is at in place of its next */
    std::unique_ptr<uint8_t[]> scratch;
    size_t scratch_bytes = 0;
};

struct showing;

class group
{
  public:
    const int rank, size;

    explicit group(const context_ref &context);
    ~group();

    bool is_of(const context_ref &context) const;
    bool is_over() const
    {
        return owner.expired();
    }
    /* Of the process that made it: a child after fork() leaves it alone. */
    bool is_ours() const;

    /* Makes the engine at the first call; all ranks come. false: there is none, on all ranks alike.
     * Throws what gloo throws while it carries the addresses. */
    bool ready(const context_ref &context, duration timeout);

    /* Waits for the call's turn: how is this rank's choice of manner, and rank 0's after.
     * Throws. */
    lane &enter(call_key key, duration timeout, manner &how);
    void leave(lane &lane);

    /* The context is of no more use: err and the thread's last error tell why, and what the program
     * called, as the engine's sentence speaks of its own calls. Throws. */
    [[noreturn]] void fail(int err, duration timeout, const std::string &called = std::string());

    /* A call of this rank ends by an exception that is not ours: the others would wait for it. */
    void abandon();

    /* At exit. */
    void close();

  private:
    enum { NEW, READY, NONE };

    void set_up(context_ref context, duration timeout);
    void destroy_comms();
    lane &say(uint64_t key, duration timeout, manner &how);
    lane &follow(uint64_t key, duration timeout, manner &how);
    bool find_turn(uint64_t key, notice &out);
    void show(uint64_t key, showing &out);
    void read_notice(std::unique_lock<std::mutex> &guard, duration timeout);
    void wait(std::unique_lock<std::mutex> &guard, std::chrono::steady_clock::time_point deadline,
              duration timeout);
    void check() const;
    void refuse(uint64_t key, const manner &theirs, const manner &ours);
    void break_down(const std::string &text);

    std::weak_ptr<context> owner;
    const int pid;
    std::atomic<int> state{NEW};
    std::mutex setting_up, saying;

    std::mutex lock; /* of what follows */
    std::condition_variable moved;
    sluice_comm *control = nullptr;
    lane lanes[LANES];
    std::deque<notice> notices; /* read, and waiting for their calls */
    bool reading = false;
    std::string broken; /* why; empty: it is not */
};

/* The group of a context; it lives at least as long as the reference. */
std::shared_ptr<group> group_of(const context_ref &context);

/* The first members, where this gloo has them. */
const context_view &view(const context_ref &context);

} // namespace sl_gloo

#endif
