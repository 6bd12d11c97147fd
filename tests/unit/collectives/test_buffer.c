/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that two interfaces have a use for, one of which refuses it. */
#include "lib/api.h"

#include "core/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static int registered, allocated, second_says;

static int reg(struct sl_iface *iface, const struct sl_mem *mem, struct sl_mr **out,
               struct sl_key *key)
{
    *out = (struct sl_mr *)&registered;
    registered++;
    return 0;
}

static int reg_second(struct sl_iface *iface, const struct sl_mem *mem, struct sl_mr **out,
                      struct sl_key *key)
{
    return second_says == 0 ? reg(iface, mem, out, key)
                            : sl_fail(second_says, "this interface takes no memory");
}

static void dereg(struct sl_iface *iface, struct sl_mr *mr)
{
    registered--;
}

static int mem_alloc(struct sl_iface *iface, size_t len, size_t backed, struct sl_mem *out)
{
    *out = (struct sl_mem){.addr = calloc(1, len), .len = len, .fd = -1};
    allocated++;
    return 0;
}

static void mem_free(struct sl_iface *iface, struct sl_mem *mem)
{
    free(mem->addr);
    allocated--;
}

static unsigned mem_gone(struct sl_iface *iface, void *addr, size_t len)
{
    return 0;
}

static struct sl_transport_ops first_ops = {.name = "first",
                                            .mr_reg = reg,
                                            .mr_dereg = dereg,
                                            .mem_alloc = mem_alloc,
                                            .mem_free = mem_free,
                                            .mem_gone = mem_gone};
static struct sl_transport_ops second_ops = {
    .name = "second", .mr_reg = reg_second, .mr_dereg = dereg, .mem_gone = mem_gone};
static struct sl_iface first = {.ops = &first_ops, .caps = SL_CAP_MAP},
                       second = {.ops = &second_ops};
static struct sl_iface_slot slots[2] = {{.ops = &first_ops, .iface = &first},
                                        {.ops = &second_ops, .iface = &second}};
static struct sl_worker worker = {.slots = slots, .slot_count = 2};
static struct sluice_comm comm = {.worker = &worker};

static int make(void **state)
{
    (void)state;
    sl_list_init(&comm.buffers);
    registered = allocated = 0;
    return 0;
}

static void a_refusal_gives_back_what_others_registered(void **state)
{
    struct sluice_buffer *buffer;
    char memory[64];

    second_says = -ENOMEM;
    assert_int_equal(sluice_register(&comm, memory, sizeof(memory), &buffer), -ENOMEM);
    assert_null(buffer);
    assert_int_equal(registered, 0);
}

static void a_refusal_gives_back_what_was_allocated(void **state)
{
    void *memory;

    second_says = -ENOMEM;
    assert_int_equal(sluice_alloc(&comm, 64, &memory), -ENOMEM);
    assert_null(memory);
    assert_int_equal(registered, 0);
    assert_int_equal(allocated, 0);
}

static void who_has_no_use_for_memory_is_passed_over(void **state)
{
    struct sluice_buffer *buffer;
    char memory[64];
    void *own;

    for (second_says = -ENOTSUP; second_says <= 0; second_says += ENOTSUP) {
        int each = second_says == 0 ? 2 : 1;

        assert_int_equal(sluice_register(&comm, memory, sizeof(memory), &buffer), 0);
        assert_int_equal(registered, each);
        assert_int_equal(sluice_alloc(&comm, 64, &own), 0);
        assert_int_equal(registered, 2 * each);
        sluice_free(&comm, own);
        sluice_deregister(&comm, buffer);
        assert_int_equal(registered, 0);
        assert_int_equal(allocated, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_refusal_gives_back_what_others_registered, make),
        cmocka_unit_test_setup(a_refusal_gives_back_what_was_allocated, make),
        cmocka_unit_test_setup(who_has_no_use_for_memory_is_passed_over, make),
    };

    return cmocka_run_group_tests_name("buffer", tests, NULL, NULL);
}
