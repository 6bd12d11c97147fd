/* SPDX-License-Identifier: Apache-2.0 */
/* The pause of a loop that waits for another core's store, and how a store is prepared. */
#ifndef SL_CORE_RELAX_H
#define SL_CORE_RELAX_H

/*
 * Lets the core rest for some tens of cycles, so that it neither floods its own pipeline with loads
 * that will be thrown away nor takes the other hyperthread's share.
 *
 * 64-bit ARM: YIELD is a hint to hyperthreads, which its server cores do not have, and a NOP there;
 * ISB empties the pipeline, which takes about as long as PAUSE. It orders no memory, nor does
 * PAUSE.
 */
static inline void sl_cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#else
    __asm__ volatile("" ::: "memory");
#endif
}

/* The line that holds p will be written: a hint to take it from the cores that have read it.
 * __builtin_prefetch() asks for a line to read unless the compiler may assume a processor with
 * PREFETCHW; one without takes it for a NOP. */
static inline void sl_prefetch_write(const void *p)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)p));
#else
    __builtin_prefetch(p, 1);
#endif
}

#endif
