/* SPDX-License-Identifier: MIT */
/*
 * dma.h - around the copies that a NIC would make: a program may poll memory
 * that its NIC writes, so the thread sanitizer does not look at them. The
 * completions, which are the program's own, it sees.
 */
#ifndef SKEIN_DEV_SOFT_LINK_DMA_H
#define SKEIN_DEV_SOFT_LINK_DMA_H

#ifdef __SANITIZE_THREAD__
/* of its runtime; no header declares them */
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);

static inline void dma_begin(void)
{
	AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
	AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

static inline void dma_end(void)
{
	AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
	AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}
#else
static inline void dma_begin(void)
{
}

static inline void dma_end(void)
{
}
#endif

#endif
