/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that peers map: what they announce, what a key says, and how long a mapping lasts. */
#include "tests/unit/shm/side.h"

#include <unistd.h>

#define LEN 8192u

static struct side owner, user;
static struct sl_mem mem;
static struct sl_mr *mr;
static struct sl_key key;

/* The owner has one region, and the user has heard of it. */
static int fresh(void **state)
{
    (void)state;
    side_open(&owner);
    side_open(&user);
    sides_connect(&owner, &user);
    assert_int_equal(sl_shm_ops.mem_alloc(owner.iface, LEN, LEN, &mem), 0);
    assert_int_equal(sl_shm_ops.mr_reg(owner.iface, &mem, &mr, &key), 0);
    PUMP(&owner, &user, inside(&user)->peer_region_count == 1);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    side_close(&user);
    if (mr != NULL)
        sl_shm_ops.mr_dereg(owner.iface, mr);
    mr = NULL;
    sl_shm_ops.mem_free(owner.iface, &mem);
    side_close(&owner);
    return 0;
}

static void take_back(void)
{
    sl_shm_ops.mr_dereg(owner.iface, mr);
    mr = NULL;
}

/* Two mappings under one id: the first to be found would be taken, whichever the peer meant. */
static void a_region_that_is_announced_twice_loses_the_peer(void **state)
{
    struct shm_region_msg again = {1, LEN, 0};

    (void)state;
    assert_int_equal(inside(&user)->heard_region, again.id);
    assert_int_equal(
        shm_post(inside(&owner)->source.fd, SHM_REGION, &again, sizeof(again), &mem.fd, 1), 0);
    PUMP(&user, NULL, user.downs == 1 || inside(&user)->peer_region_count == 2);
    assert_int_equal(user.downs, 1);
    assert_int_equal(user.down_status, -EBADMSG);
}

/* A store behind the file's end would end this process. */
static void a_region_that_its_file_does_not_hold_is_not_used(void **state)
{
    struct shm_region_msg said[] = {{2, LEN + 4096, 0}, {3, LEN, 4096}, {4, 4096, LEN + 4096}};

    (void)state;
    for (unsigned i = 0; i < SL_ARRAY_LEN(said); i++) {
        struct shm_key its = {said[i].id, said[i].len};
        struct sl_key of_it;
        void *ptr = NULL;

        assert_int_equal(
            shm_post(inside(&owner)->source.fd, SHM_REGION, &said[i], sizeof(said[i]), &mem.fd, 1),
            0);
        PUMP(&user, NULL, inside(&user)->heard_region == said[i].id);
        shm_key_pack(&its, &of_it);
        assert_int_equal(sl_shm_ops.map(user.ep, &of_it, said[i].len, &ptr), -ENOTSUP);
        assert_null(ptr);
        assert_int_equal(inside(&user)->peer_region_count, 1);
    }
    assert_int_equal(user.downs, 0);
}

/* The key and the announcement come over different ways: one of them is wrong. */
static void a_key_of_another_length_maps_nothing(void **state)
{
    struct shm_key said = {1, LEN + 4096};
    struct sl_key wrong;
    void *ptr = NULL;

    (void)state;
    shm_key_pack(&said, &wrong);
    assert_int_equal(sl_shm_ops.map(user.ep, &wrong, LEN, &ptr), -EPROTO);
    assert_non_null(strstr(sluice_last_error(), "its key says 12288"));
    assert_null(ptr);
    said.len = LEN - 4096;
    shm_key_pack(&said, &wrong);
    assert_int_equal(sl_shm_ops.map(user.ep, &wrong, 1, &ptr), -EPROTO);
    assert_null(ptr);
    assert_int_equal(sl_shm_ops.map(user.ep, &key, LEN, &ptr), 0);
    sl_shm_ops.unmap(user.ep, ptr);
}

static void a_region_that_its_owner_took_back_goes_with_its_last_user(void **state)
{
    uint64_t end = test_now() + TEST_DEADLINE_NS;
    void *first, *second, *third;
    int rc;

    (void)state;
    assert_int_equal(sl_shm_ops.map(user.ep, &key, LEN, &first), 0);
    assert_int_equal(sl_shm_ops.map(user.ep, &key, LEN, &second), 0);
    take_back();
    /* The news comes a little later: until then there are more users. */
    while ((rc = sl_shm_ops.map(user.ep, &key, LEN, &third)) == 0) {
        sl_shm_ops.unmap(user.ep, third);
        sl_shm_ops.progress(user.iface, 64);
        assert_true(test_now() < end);
    }
    assert_int_equal(rc, -ENOTSUP);
    assert_int_equal(inside(&user)->peer_region_count, 1);
    sl_shm_ops.unmap(user.ep, first);
    assert_int_equal(inside(&user)->peer_region_count, 1);
    ((volatile uint8_t *)second)[LEN - 1] = 9; /* still the owner's memory */
    assert_int_equal(((uint8_t *)mem.addr)[LEN - 1], 9);
    sl_shm_ops.unmap(user.ep, second);
    assert_int_equal(inside(&user)->peer_region_count, 0);
}

static void a_region_that_nobody_uses_goes_when_its_owner_takes_it_back(void **state)
{
    void *ptr;

    (void)state;
    /* Users that come and go do not end it. */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sl_shm_ops.map(user.ep, &key, LEN, &ptr), 0);
        sl_shm_ops.unmap(user.ep, ptr);
        assert_int_equal(inside(&user)->peer_region_count, 1);
    }
    take_back();
    PUMP(&user, NULL, inside(&user)->peer_region_count == 0);
    assert_int_equal(sl_shm_ops.map(user.ep, &key, LEN, &ptr), -ENOTSUP);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, fresh, clean)
    const struct CMUnitTest tests[] = {
        CASE(a_region_that_is_announced_twice_loses_the_peer),
        CASE(a_region_that_its_file_does_not_hold_is_not_used),
        CASE(a_key_of_another_length_maps_nothing),
        CASE(a_region_that_its_owner_took_back_goes_with_its_last_user),
        CASE(a_region_that_nobody_uses_goes_when_its_owner_takes_it_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
