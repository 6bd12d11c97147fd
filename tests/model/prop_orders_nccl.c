/* SPDX-License-Identifier: Apache-2.0 */
/* The orders of the file with NCCL's events: its ring, and its slots (prop_orders.c). */
#include "tests/model/story.h"

#include "tools/nccl/events.h"

/* ---- records of NCCL's events, in a ring of one ---- */

static struct sl_nccl_event_record *const place = (void *)model_shared;

static void record_writer(void)
{
    for (uint64_t turn = 1; turn <= 2; turn++) {
        struct sl_nccl_event_record record = {.id = turn, .stop_ns = turn};

        sl_nccl_record_put(place, turn, &record);
    }
}

static void record_reader(void)
{
    struct sl_nccl_event_record record;
    uint64_t turn = atomic_load_explicit(&place->turn, memory_order_relaxed);

    /* As events_view.c does with files. */
    atomic_thread_fence(memory_order_acquire);
    sl_nccl_record_copy(&record, place);
    atomic_thread_fence(memory_order_acquire);
    if (turn != 0 && atomic_load_explicit(&place->turn, memory_order_relaxed) == turn)
        model_check(record.id == turn && record.stop_ns == turn);
}

static void a_record_is_of_its_turn_or_not_there(void **state)
{
    static const struct model_story story = {
        nothing_to_begin, {record_writer, record_reader}, NULL};

    (void)state;
    run_story(&story, 3, 20000);
}

/* ---- slots of NCCL's events: taken, changed, given back, taken by another ---- */

static void slot_put(struct sl_nccl_event_record *slot, uint64_t word, uint64_t id, uint64_t state)
{
    struct sl_nccl_event_record record = {.id = id, .state_ns = state, .op.tag = id + state};

    sl_nccl_record_copy(slot, &record);
    sl_nccl_slot_written(slot, word);
}

static void slot_owner(void)
{
    struct sl_nccl_event_record record;
    uint64_t word;

    for (uint64_t turn = 1; turn <= 3; turn += 2) {
        model_check(sl_nccl_slot_take(place, &word));
        slot_put(place, word, turn, 1);
        model_check(sl_nccl_slot_change(place, turn, &word));
        slot_put(place, word, turn, 2);
        model_check(sl_nccl_slot_give(place, turn, &record));
        model_check(record.id == turn && record.op.tag == turn + 2);
    }
}

static void slot_reader(void)
{
    struct sl_nccl_event_record record;
    uint64_t word = atomic_load_explicit(&place->turn, memory_order_relaxed);

    atomic_thread_fence(memory_order_acquire);
    sl_nccl_record_copy(&record, place);
    atomic_thread_fence(memory_order_acquire);
    if (sl_nccl_slot_is_whole(word) &&
        atomic_load_explicit(&place->turn, memory_order_relaxed) == word)
        model_check(record.id == sl_nccl_slot_turn(word) &&
                    record.op.tag == record.id + record.state_ns);
}

/* A stop by one thread beside a change by another, which NCCL does not do: the slot is given back
 * once, and stays so. */
static void slot_begin(void)
{
    uint64_t word;

    model_check(sl_nccl_slot_take(place, &word));
    slot_put(place, word, 1, 1);
}

static void slot_changer(void)
{
    uint64_t word;

    if (sl_nccl_slot_change(place, 1, &word))
        slot_put(place, word, 1, 2);
}

static void slot_giver(void)
{
    struct sl_nccl_event_record record;

    model_check(sl_nccl_slot_give(place, 1, &record));
    model_check(!sl_nccl_slot_give(place, 1, &record));
}

static void slot_is_free(void)
{
    uint64_t word = atomic_load_explicit(&place->turn, memory_order_relaxed);

    model_check(sl_nccl_slot_turn(word) == 2 && (word & SL_NCCL_WRITING) == 0);
}

static void a_slot_is_read_whole_or_not_at_all(void **state)
{
    static const struct model_story read = {nothing_to_begin, {slot_owner, slot_reader}, NULL};
    static const struct model_story given = {slot_begin, {slot_changer, slot_giver}, slot_is_free};

    (void)state;
    run_story(&read, 3, 60000);
    run_story(&given, 5, 20000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_is_of_its_turn_or_not_there),
        cmocka_unit_test(a_slot_is_read_whole_or_not_at_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
