/* SPDX-License-Identifier: Apache-2.0 */
/* Fabrics as ibnetdiscover prints them: levels, speeds, and what is refused. */
#include "core/err.h"
#include "monitor/read/fabric.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static char path[512];

static const char *write_text(const char *text)
{
    const char *folder = getenv("TMPDIR");
    FILE *file;

    snprintf(path, sizeof(path), "%s/sl_fabric_%ld", folder != NULL ? folder : "/tmp",
             (long)getpid());
    file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    return path;
}

static void fabric_is_refused(const char *text, const char *part)
{
    struct sl_fabric fabric = {0};

    assert_int_equal(sl_fabric_read_file(&fabric, write_text(text)), -EBADMSG);
    if (strstr(sluice_last_error(), part) == NULL)
        fail_msg("\"%s\" has no \"%s\"", sluice_last_error(), part);
    sl_fabric_fini(&fabric);
    unlink(path);
}

#define LEAF                                                                                       \
    "\nswitchguid=0xa1(a1)\nSwitch\t4 \"S-a1\"\t\t# \"leaf # 1\" base port 0 lid 2 lmc 0\n"        \
    "[1]\t\"H-b1\"[1](b1) \t\t# \"host 4xNDR\" lid 3 4xHDR s=4\n"                                  \
    "[4][ext 2]\t\"S-c1\"[7]\t\t# \"spine\" lid 4 4xNDR\n"
#define SPINE                                                                                      \
    "\nswitchguid=0xc1(c1)\nSwitch\t8 \"S-c1\"\t\t# \"spine\"\n[7]\t\"S-a1\"[4]\t# 4xNDR\n"
#define HOST                                                                                       \
    "\ncaguid=0xb1\nCa\t2 \"H-b1\"\t\t# \"host\"\n[1](b1) \t\"S-a1\"[1]\t\t# lid 3 \"l\" lid 2 "   \
    "4xHDR\n"

static void a_fabric_has_levels_and_speeds(void **state)
{
    struct sl_fabric fabric = {0};

    (void)state;
    assert_int_equal(sl_fabric_read_file(&fabric, write_text("#\n" LEAF SPINE HOST)), 0);
    assert_int_equal(fabric.node_count, 3);
    assert_int_equal(sl_fabric_count(&fabric, SL_FABRIC_LEAF), 1);
    assert_int_equal(sl_fabric_count(&fabric, SL_FABRIC_SPINE), 1);
    assert_int_equal(sl_fabric_leaf_ports(&fabric), 1);
    assert_int_equal(sl_fabric_uplinks(&fabric, 0), 1);
    assert_string_equal(fabric.nodes[0].name, "leaf # 1");
    assert_int_equal(fabric.ports[0].mbps, 200000);
    assert_int_equal(fabric.ports[1].mbps, 400000);
    assert_int_equal(fabric.ports[fabric.ports[0].peer].node, 2);
    sl_fabric_fini(&fabric);
    unlink(path);
}

static void bad_fabrics_are_refused(void **state)
{
    (void)state;
    fabric_is_refused("\n" LEAF SPINE, "was not read to its end");
    fabric_is_refused("\n" LEAF LEAF SPINE HOST, "there twice");
    fabric_is_refused("\n" LEAF SPINE
                      "\ncaguid=0xb1\nCa\t2 \"H-b1\"\t# \"h\"\n[1] \"S-a1\"[1] # 4xNDR\n",
                      "not one speed");
    fabric_is_refused("\ncaguid=0xb1\nCa\t1 \"H-b1\"\t\t# \"host\"\n", "no switch in the fabric");
    fabric_is_refused("\ncaguid=0xb1\nCa\t1 \"H-b1\"\n[2] \"S-a1\"[1] # 4xNDR\n", "line 4");
    fabric_is_refused("\ncaguid=0xb1\nCa\t1 \"S-b1\"\n", "a node's line");
    fabric_is_refused("\ncaguid=0xb1\n[1] \"S-a1\"[1] # 4xNDR\n", "of no node");
    fabric_is_refused("\ncaguid=0xb1\nCa\t1 \"H-b1\"\n[1] \"S-a1\"[1] # fast\n", "width and speed");
    fabric_is_refused("\ncaguid=0xb1\nhello\n", "nothing that ibnetdiscover prints");
}

static void the_recorded_fabric_has_31_leaves_and_9_spines(void **state)
{
    const char *folder = getenv("SLUICE_TEST_DATA");
    struct sl_fabric fabric = {0};
    uint32_t least = 99, most = 0;
    char name[512];

    (void)state;
    snprintf(name, sizeof(name), "%s/fabric/ibnetdiscover.out", folder != NULL ? folder : "");
    if (access(name, R_OK) != 0) {
        print_message("no recorded file %s\n", name);
        skip();
    }
    assert_int_equal(sl_fabric_read_file(&fabric, name), 0);
    assert_int_equal(sl_fabric_count(&fabric, SL_FABRIC_LEAF), 31);
    assert_int_equal(sl_fabric_count(&fabric, SL_FABRIC_SPINE), 9);
    assert_int_equal(sl_fabric_leaf_ports(&fabric), 573);
    assert_int_equal(fabric.node_count, 40 + 582);
    for (uint32_t i = 0; i < fabric.node_count; i++)
        if (fabric.nodes[i].level == SL_FABRIC_LEAF) {
            uint32_t up = sl_fabric_uplinks(&fabric, i);

            least = up < least ? up : least;
            most = up > most ? up : most;
        }
    assert_int_equal(least, 14);
    assert_int_equal(most, 18);
    sl_fabric_fini(&fabric);
    snprintf(name, sizeof(name), "%s/fabric/ibnetdiscover-bad.out", folder);
    assert_int_equal(sl_fabric_read_file(&fabric, name), -EBADMSG);
    assert_non_null(strstr(sluice_last_error(), "no switch in the fabric"));
    sl_fabric_fini(&fabric);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fabric_has_levels_and_speeds),
        cmocka_unit_test(bad_fabrics_are_refused),
        cmocka_unit_test(the_recorded_fabric_has_31_leaves_and_9_spines),
    };

    return cmocka_run_group_tests_name("diagnosis_fabric", tests, NULL, NULL);
}
