/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Compression: collectives that send fewer bytes than their elements have, by a codec.
 *
 * Nothing is compressed unless asked for: by sluice_comm_set_compression(), by
 * sluice_operation_set_compression(), or by SLUICE_COMPRESS, which sets it for every communicator
 * as it is made. A codec that is lossy changes results; on every rank they are the same bits.
 *
 * The text names a codec and its parameters, "bq8" or "bq4:stochastic=on,min=1M,feedback=on":
 *
 * - when=cost       calls are compressed where that should take at least a tenth less time, by
 *                   measured costs of links and codecs; all others are sent as they are, and so
 *                   is everything where all ranks are on one host. when=cost where nothing is
 *                   said. when=always: whatever it costs.
 * - min=BYTES       calls whose larger buffer has less are sent as they are; 4k where it is not
 *                   said, with when=always 64k. 1M, 512k and so on.
 * - feedback=on     error feedback: what the codec loses of an element is added to it the next
 *                   time. A persistent operation knows what comes again, but for an all_to_all.
 *                   Of ordinary calls those that sum take for it what has the same buffer, count,
 *                   type and operator on the same communicator, as buckets of gradients have;
 *                   another tensor there has errors of its codec's size added once. Costs 4 bytes
 *                   an element.
 * - keep=BYTES      of residuals of ordinary calls, the most of a communicator: 1G where it is not
 *                   said. What was unused for longest goes first. 0: these calls keep nothing.
 * - inside=CODEC    within hosts, for an allreduce of several hosts with as many ranks each: raw
 *                   where it is not said. Between hosts then goes the sum of each.
 * - recipe=NAME     how, wherever that can be. ring: allreduce and reduce_scatter where each rank
 *                   encodes the sum so far for the next one; ranks need their neighbours alone, and
 *                   the error grows with their number. gather: allreduce in which all get every
 *                   rank's encoding and keep the whole sum; bytes grow with the number of ranks.
 *                   sum: an ordinary allreduce, of encodings that add. oneshot, hosts: what is
 *                   usual on one host and on several. auto, where it is not said: sum for what
 *                   adds, else one of the latter, and gather for top-k where it sends no more.
 * - vote=on         of sign: an allreduce counts the ranks that are below zero. Its sum has the
 *                   sign of the majority, and is 0 where votes are even. By no other recipe than
 *                   sum.
 * - measure=on      decodes what was encoded, for the error in the report. Costs time.
 * - the codec's own sluice-compress(1) lists them.
 *
 * Compressed are allreduce and reduce_scatter with SLUICE_SUM or SLUICE_AVG, all_gather, broadcast
 * and all_to_all, of SLUICE_F32, SLUICE_BF16 or SLUICE_F16; all other calls go as they are. Sums
 * are taken in f32 and in the order of ranks (but in a ring), of encodings of all ranks' elements,
 * this rank's too.
 * Compressed calls have algorithms of their own, whatever SLUICE_ALGO says, but for an allreduce by
 * encodings that add (shiq, randk, sketch, sign:vote=on): these are integers or floats which go by
 * an allreduce as others do, and each element is encoded once.
 */
#ifndef SLUICE_COMPRESS_H
#define SLUICE_COMPRESS_H

#include <sluice/comm.h>
#include <sluice/operation.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Have the calls on comm, and the operations that are made on it, compressed from now on. NULL or
 * "": not. A communicator that is split off later starts with the same.
 *
 * Order   Local: nobody is waited for. All ranks set the same between the same two calls; where
 *         they do not, the next call ends with -EPROTO, which names ranks and codecs, before
 *         anything of it is in out. What is under way, and operations that are there, stay as they
 *         are.
 * Errors  -EINVAL, with the choices there are; -ENOMEM. The setting is then what it was.
 */
SLUICE_API int sluice_comm_set_compression(struct sluice_comm *comm, const char *text);

/**
 * The same for the starts of one operation, whatever its communicator's setting is. Residuals and
 * the request of earlier starts are gone with it.
 *
 * Errors  also -EINVAL: the operation is under way.
 */
SLUICE_API int sluice_operation_set_compression(struct sluice_operation *operation,
                                                const char *text);

/**
 * GPU memory. in and out of a compressed call may be memory of one GPU of NVIDIA's, both of them:
 * kernels encode and decode there, and what is sent is pinned memory of the host. The bytes are
 * those of the processor's codecs, so ranks with and without a GPU may meet. It needs a build with
 * nvcc, and a codec with kernels: bf16, fp16, bq8, bq4, bq2, e4m3, e5m2, mxfp8, mxfp4, nvfp4, e3m0,
 * sign; without rotated, measure and vote. What is fed back lies in pinned memory. Calls that are
 * not compressed end with -ENOTSUP; so an operation is made once its communicator compresses.
 *
 * A call reads and writes in and out after all that was on a stream of CUDA's when it was made (an
 * operation: when it was started). This sets which: a CUstream or cudaStream_t, borrowed until the
 * next one is set or comm is destroyed, and not capturing a graph; NULL: the default stream, which
 * it is at first. When the request is done, out is there for work on any stream.
 *
 * Order   Local: nobody is waited for. A communicator that is split off starts with NULL.
 * Errors  -EINVAL.
 */
SLUICE_API int sluice_comm_set_stream(struct sluice_comm *comm, void *stream);

/** What compression came to, on this rank. Later versions may give reserved fields a meaning. */
struct sluice_compression_report {
    uint64_t calls;      /**< compressed ones that have ended well */
    uint64_t raw_bytes;  /**< that the elements have which this rank sent in them */
    uint64_t wire_bytes; /**< that it sent in their place */
    double error; /**< what encodings lack of their elements, in mean squares over the mean square
                       of the elements; negative: it is not measured (measure=on) */
    int64_t saved_ns;   /**< estimated: what these calls should have taken as they are, by measured
                           costs, less the time in which at least one was under way. Of those on
                           GPU memory it is not known, and they have no part in it */
    uint64_t raw_calls; /**< left as they are, as compressing should have taken longer */
    uint64_t reserved[2]; /**< 0 */
};

/**
 * Of the calls on comm since its compression was set, and of the operations that have taken this
 * setting; those of communicators that were split from it count, too. All 0 where nothing is set.
 */
SLUICE_API int sluice_comm_compression_report(struct sluice_comm *comm,
                                              struct sluice_compression_report *out);

/**
 * The same of the starts of one operation since it has its setting. Of one that goes by its
 * communicator's it is what sluice_comm_compression_report() gave while that was set.
 *
 * Errors  -EINVAL.
 */
SLUICE_API int sluice_operation_compression_report(struct sluice_operation *operation,
                                                   struct sluice_compression_report *out);

/**
 * What a compressed operation keeps from start to start (residuals with feedback=on; how often it
 * was started, by which stochastic=on draws), as bytes for a checkpoint.
 *
 * Shapes  *size bytes of room at out, at any alignment, and then how many there are. out NULL: only
 *         the size.
 * Errors  -EINVAL: it is not compressed, is under way, or there is too little room; -ENOMEM.
 */
SLUICE_API int sluice_operation_save(struct sluice_operation *operation, void *out, size_t *size);

/**
 * Go on from what sluice_operation_save() gave on this rank of an operation with the same codec and
 * count: bit for bit as if it had not been interrupted. Of another number of ranks, of ranks on
 * other hosts, or by another algorithm (recipe=), the part of this rank's own elements is taken if
 * both have one, and that of sums starts anew.
 *
 * Errors  -EINVAL: of another codec or other elements, or this one is not compressed or is under
 *         way; -EBADMSG: no such bytes, or they lack elements; -ENOMEM. It is then as it was.
 */
SLUICE_API int sluice_operation_load(struct sluice_operation *operation, const void *in,
                                     size_t size);

/**
 * Say what the elements of an operation are in a checkpoint: those of the tensor id, from its
 * element first on. Of several operations that are saved together no two have the same. Ids are
 * yours and outlive the process: the number of a parameter, or one for all of a model, in the order
 * in which its parameters are cut into buckets. Both are 0 where they are not said.
 *
 * Elements are numbered as in the operation's input: count of them, and of a reduce_scatter or an
 * all_to_all count for each rank.
 *
 * Errors  -EINVAL.
 */
SLUICE_API int sluice_operation_set_state_id(struct sluice_operation *operation, uint64_t id,
                                             uint64_t first);

/**
 * sluice_operation_save() of several operations of one communicator at once; those that are not
 * compressed have no part in it.
 *
 * Errors  also -EINVAL: two of them have the same elements, see sluice_operation_set_state_id().
 */
SLUICE_API int sluice_operations_save(struct sluice_operation *const *operations, size_t count,
                                      void *out, size_t *size);

/**
 * sluice_operation_load() of several operations at once, in any order, of bytes of operations with
 * the same elements in all. They may be cut into other operations than those that were saved: what
 * is kept of own elements is taken, and that of sums starts anew.
 */
SLUICE_API int sluice_operations_load(struct sluice_operation *const *operations, size_t count,
                                      const void *in, size_t size);

#ifdef __cplusplus
}
#endif
#endif
