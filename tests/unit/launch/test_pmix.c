/* SPDX-License-Identifier: Apache-2.0 */
/* PMIx, with its library played by this program: what it is asked, and an answer that does not
 * come. */
#include "launch/pmix.h"

#include "core/clock.h"
#include "core/err.h"

#include <dlfcn.h>
#include <pmix.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static unsigned not_yet; /* so many questions are answered by "there is no such key" */
static bool silent;      /* none is answered */
static char kept_key[PMIX_MAX_KEYLEN + 1], kept_text[64];
static unsigned inits, finalizes, asked;
static struct {
    pmix_value_cbfunc_t answer; /* NULL: none */
    void *arg;
} unanswered;

void *__real_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags);

void *__wrap_dlopen(const char *name, int flags)
{
    return __real_dlopen(name != NULL && strcmp(name, "libpmix.so.2") == 0 ? NULL : name, flags);
}

#define PLAYED __attribute__((visibility("default")))

PLAYED pmix_status_t PMIx_Init(pmix_proc_t *proc, pmix_info_t info[], size_t ninfo)
{
    *proc = (pmix_proc_t){.nspace = "job", .rank = 1};
    inits++;
    return PMIX_SUCCESS;
}

PLAYED pmix_status_t PMIx_Finalize(const pmix_info_t info[], size_t ninfo)
{
    finalizes++;
    if (unanswered.answer != NULL) /* too late for who asked */
        unanswered.answer(PMIX_ERR_NOT_FOUND, NULL, unanswered.arg);
    unanswered.answer = NULL;
    return PMIX_SUCCESS;
}

PLAYED pmix_status_t PMIx_Put(pmix_scope_t scope, const char key[], pmix_value_t *val)
{
    assert_int_equal(scope, PMIX_GLOBAL);
    strncpy(kept_key, key, sizeof(kept_key) - 1);
    strncpy(kept_text, val->data.string, sizeof(kept_text) - 1);
    return PMIX_SUCCESS;
}

PLAYED pmix_status_t PMIx_Commit(void)
{
    return PMIX_SUCCESS;
}

PLAYED pmix_status_t PMIx_Get_nb(const pmix_proc_t *proc, const char key[],
                                 const pmix_info_t info[], size_t ninfo, pmix_value_cbfunc_t answer,
                                 void *arg)
{
    pmix_value_t value = {.type = PMIX_STRING, .data = {.string = kept_text}};

    assert_int_equal(proc->rank, 0);
    assert_string_equal(key, kept_key);
    if (silent) {
        assert_null(unanswered.answer);
        unanswered.answer = answer;
        unanswered.arg = arg;
        return PMIX_SUCCESS;
    }
    if (asked++ < not_yet)
        answer(PMIX_ERR_NOT_FOUND, NULL, arg);
    else
        answer(PMIX_SUCCESS, &value, arg);
    return PMIX_SUCCESS;
}

static pmix_value_t *number(uint32_t what)
{
    pmix_value_t *value = calloc(1, sizeof(*value));

    value->type = PMIX_UINT32;
    value->data.uint32 = what;
    return value;
}

PLAYED pmix_status_t PMIx_Get(const pmix_proc_t *proc, const char key[], const pmix_info_t info[],
                              size_t ninfo, pmix_value_t **val)
{
    if (strcmp(key, PMIX_JOB_SIZE) == 0) {
        *val = number(4);
    } else if (strcmp(key, PMIX_LOCAL_SIZE) == 0) {
        *val = number(2);
    } else {
        return PMIX_ERR_NOT_FOUND;
    }
    return PMIX_SUCCESS;
}

PLAYED const char *PMIx_Error_string(pmix_status_t status)
{
    return status == PMIX_ERR_NOT_FOUND ? "not found" : "some error";
}

static int open_library(void **state)
{
    struct sl_pmix_self self;

    (void)state;
    asked = not_yet = 0;
    silent = false;
    return sl_pmix_open(&self);
}

static int close_library(void **state)
{
    (void)state;
    sl_pmix_close();
    return 0;
}

/* The next place as rank 0 gives it, which another process then asks for: sl_pmix_share() counts
 * them. */
static void put_place(const char *text)
{
    char own[64];

    assert_int_equal(sl_pmix_share(text, own, sizeof(own), 10000), 0);
    assert_string_equal(own, text);
    assert_string_equal(kept_text, text);
    kept_key[strlen(kept_key) - 1]++; /* as if this process had not counted it */
}

static void a_process_learns_who_it_is(void **state)
{
    struct sl_pmix_self self;

    (void)state;
    inits = finalizes = 0;
    assert_int_equal(sl_pmix_open(&self), 0);
    assert_int_equal(self.rank, 1);
    assert_int_equal(self.size, 4);
    assert_int_equal(self.local_size, 2);
    assert_int_equal(self.local_rank, -1); /* which this server does not know */
    sl_pmix_close();
    assert_int_equal(inits, 1);
    assert_int_equal(finalizes, 1);
}

static void a_place_is_asked_for_until_it_is_there(void **state)
{
    char out[64];

    (void)state;
    put_place("here");
    not_yet = 3;
    assert_int_equal(sl_pmix_share(NULL, out, sizeof(out), 10000), 0);
    assert_string_equal(out, "here");
    assert_int_equal(asked, 4);
}

static void a_place_that_is_too_long_is_refused(void **state)
{
    char out[8] = "same";

    (void)state;
    put_place("too long for that");
    assert_int_equal(sl_pmix_share(NULL, out, sizeof(out), 10000), -EPROTO);
    assert_string_equal(out, "same");
}

static void a_place_that_never_comes_has_a_deadline(void **state)
{
    char out[64];

    (void)state;
    for (int i = 0; i < 2; i++) {
        uint64_t start_ns = sl_now(&sl_clock_monotonic);

        put_place("here");
        silent = i == 0;
        not_yet = UINT32_MAX;
        assert_int_equal(sl_pmix_share(NULL, out, sizeof(out), 50), -ETIMEDOUT);
        assert_non_null(
            strstr(sluice_last_error(), "PMIx had no meeting place of rank 0 within 0.05 s"));
        assert_true(sl_now(&sl_clock_monotonic) - start_ns >= 50 * SL_NS_PER_MS);
        silent = false;
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_library, close_library)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_learns_who_it_is),
        CASE(a_place_is_asked_for_until_it_is_there),
        CASE(a_place_that_is_too_long_is_refused),
        CASE(a_place_that_never_comes_has_a_deadline),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
