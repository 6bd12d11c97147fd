/* SPDX-License-Identifier: Apache-2.0 */
/* PMIx, what Open MPI's mpirun and srun --mpi=pmix offer to the processes they start; its library
 * is opened at run time. */
#ifndef SL_LAUNCH_PMIX_H
#define SL_LAUNCH_PMIX_H

#include <stddef.h>
#include <stdint.h>

/* What the launcher's server says of this process; -1: it does not say. */
struct sl_pmix_self {
    int rank, size, local_rank, local_size;
};

/* Introduces this process to its server; end by sl_pmix_close(). -ENOTSUP: built without PMIx, or
 * its library cannot be opened here; other codes: it is here, but the server cannot be reached. */
int sl_pmix_open(struct sl_pmix_self *out);

/* Hands text of rank 0 (NULL on the others) to all ranks. Rank 0 does not wait for them.
 * -ETIMEDOUT: rank 0 has not come. */
int sl_pmix_share(const char *text, char *out, size_t cap, uint64_t timeout_ms);

void sl_pmix_close(void);

#endif
