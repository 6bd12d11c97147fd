/* SPDX-License-Identifier: Apache-2.0 */
/* State pages and files of NCCL's events, of whatever user, as the agent reads them: twice, with
 * another content the second time. */
#include "core/err.h"
#include "page.h"
#include "monitor/nccl.h"
#include "monitor/page.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define COMMS 4
#define OPS 4
#define PATHS 8
#define SLOTS 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct image {
    struct sl_state_header header;
    struct sl_state_section sections[7];
    struct sl_state_process process[1];
    struct sl_state_comm comms[COMMS];
    struct sl_state_op ops[OPS];
    struct sl_state_path paths[PATHS];
    struct sl_event_row rows[4];
    uint64_t head[1][5];
    uint8_t slots[SLOTS][128];
};

static void make(struct image *image)
{
    memset(image, 0, sizeof(*image));
    fuzz_header(&image->header, offsetof(struct image, sections), 7, sizeof(*image));
    image->sections[0] = FUZZ_ROWS(SL_STATE_PROCESS, process);
    image->sections[1] = FUZZ_ROWS(SL_STATE_COMM, comms);
    image->sections[2] = FUZZ_ROWS(SL_STATE_OP, ops);
    image->sections[3] = FUZZ_ROWS(SL_STATE_PATH, paths);
    image->sections[4] = FUZZ_ROWS(SL_STATE_EVENT_ROW, rows);
    image->sections[5] = FUZZ_ROWS(SL_STATE_NCCL, head);
    image->sections[6] = FUZZ_ROWS(SL_STATE_NCCL_OPEN, slots);
    image->process->turn = image->comms[0].turn = image->ops[0].turn = image->paths[0].turn = 2;
    image->comms[0].number = image->ops[0].comm = image->paths[0].comm = 1;
    atomic_store(&image->comms[0].calls.begun[0], 1);
    strcpy(image->paths[0].name, "rxe0:1 > 198.51.100.2");
    image->head[0][0] = 2;
    for (unsigned i = 0; i < SLOTS; i++)
        image->slots[i][0] = 1;
}

static int16_t port(void *arg, const char *name)
{
    (void)arg;
    sl_assert(strnlen(name, SL_MON_NAME) < SL_MON_NAME);
    return 0;
}

static void changed(void *arg, int16_t number, const struct sl_mon_path_change *change)
{
    (void)arg;
    (void)change;
    sl_assert(number == 0 || number == -1);
}

static void read_page(struct sl_mon_page *page, struct sl_mon_nccl *nccl)
{
    struct sl_mon_path_verdict verdict = {.paths = 0};
    struct sl_mon_page_change change;
    char text[128];

    if (sl_mon_page_read(page, &change) == 0) {
        sl_mon_page_paths(page, 1000, port, changed, NULL);
        sl_mon_path_judge(page->paths, page->path_count, 1000, 0, &verdict, 1);
        sl_mon_page_text(page, 1000, text, sizeof(text));
        sl_assert(strnlen(text, sizeof(text)) < sizeof(text));
        sl_assert(page->comm_count <= SL_MON_PAGE_COMMS && page->op_count <= SL_MON_PAGE_OPS);
        sl_assert(page->path_count <= SL_MON_PAGE_PATHS && verdict.accuse <= verdict.paths);
        for (unsigned i = 0; i < page->comm_count; i++)
            sl_mon_page_why(page, &page->comms[i], text, sizeof(text));
    }
    if (sl_mon_nccl_read(nccl, 4) == 0)
        sl_assert(strnlen(nccl->now.func, sizeof(nccl->now.func)) < sizeof(nccl->now.func));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    struct sl_mon_page page;
    struct sl_mon_nccl nccl;
    struct image image;

    if (fd < 0)
        fd = memfd_create("fuzz-page", MFD_CLOEXEC);
    sl_mon_page_init(&page, fd);
    sl_mon_nccl_init(&nccl, fd);
    make(&image);
    for (unsigned half = 0; half < 2; half++) {
        fuzz_lay(&image, sizeof(image), half == 0 ? data : data + size / 2,
                 half == 0 ? size / 2 : size - size / 2);
        sl_assert(pwrite(fd, &image, sizeof(image), 0) == sizeof(image));
        read_page(&page, &nccl);
    }
    sl_mon_page_fini(&page);
    return 0;
}
