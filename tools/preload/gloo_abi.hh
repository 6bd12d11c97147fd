/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gloo's options as they lie in memory: what a program compiled against gloo's headers hands to its
 * calls. The layout has stayed the same for years (checked: 2022-05 as in Debian 12, and 2026-04),
 * so one module serves programs that link libgloo and those that carry it inside, like PyTorch's
 * wheels. Tests run programs that are compiled against the headers that are installed.
 *
 * What did change is the context: with a table of virtual functions before its first member until
 * 2024, without since; gloo_bridge.h's has_table tells.
 */
#ifndef SL_PRELOAD_GLOO_ABI_HH
#define SL_PRELOAD_GLOO_ABI_HH

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

/* Programs catch these by name: the C++ runtime compares the names of types. */
namespace gloo
{
struct Exception : public std::runtime_error {
    explicit Exception(const std::string &text) : std::runtime_error(text)
    {
    }
};
struct IoException : public Exception {
    explicit IoException(const std::string &text) : Exception(text)
    {
    }
};
} // namespace gloo

namespace sl_gloo
{

struct context; /* opaque */
using context_ref = std::shared_ptr<context>;
using duration = std::chrono::milliseconds;
using reduce_fn = std::function<void(void *, const void *, const void *, size_t)>;

/* Its other virtual functions follow the destructor. */
struct buffer {
    virtual ~buffer() = 0;
    void *ptr;
    size_t size;
};
using buffer_ref = std::unique_ptr<buffer>;

struct allreduce_options {
    context_ref context;
    duration timeout;
    int algorithm;
    std::vector<buffer_ref> in, out; /* in empty: out is the input too */
    size_t elements, element_size;
    reduce_fn reduce;
    uint32_t tag;
    size_t segment_bytes;
};

/* Of allgather and alltoall. */
struct exchange_options {
    context_ref context;
    buffer_ref in, out;
    size_t element_size;
    uint32_t tag;
    duration timeout;
};

struct allgatherv_options {
    context_ref context;
    buffer_ref in, out;
    std::vector<size_t> elements; /* by rank */
    size_t element_size;
    uint32_t tag;
    duration timeout;
};

struct broadcast_options {
    context_ref context;
    buffer_ref in, out;
    size_t elements, element_size;
    int root;
    uint32_t tag;
    duration timeout;
};

struct reduce_options {
    context_ref context;
    buffer_ref in, out;
    size_t elements, element_size;
    int root;
    reduce_fn reduce;
    uint32_t tag;
    size_t segment_bytes;
    duration timeout;
};

struct gather_options {
    context_ref context;
    buffer_ref in, out;
    size_t element_size;
    int root;
    uint32_t tag;
    duration timeout;
};

struct gatherv_options {
    context_ref context;
    buffer_ref in, out;
    std::vector<size_t> elements; /* by rank */
    size_t element_size;
    int root;
    uint32_t tag;
    duration timeout;
};

struct scatter_options {
    context_ref context;
    std::vector<buffer_ref> in; /* by rank; on root only */
    buffer_ref out;
    size_t element_size;
    int root;
    uint32_t tag;
    duration timeout;
};

struct alltoallv_options {
    context_ref context;
    buffer_ref in, out;
    std::vector<size_t> in_offsets, in_lengths, out_offsets, out_lengths; /* bytes, by rank */
    size_t element_size;
    uint32_t tag;
    duration timeout;
};

struct barrier_options {
    context_ref context;
    buffer_ref buffer;
    uint32_t tag;
    duration timeout;
};

/* gloo::Context::createUnboundBuffer(void *, size_t). */
using create_buffer_fn = buffer_ref(context *, void *, size_t);

/* The first members of a context. */
struct context_view {
    const int rank, size;
};

} // namespace sl_gloo

#endif
