/* SPDX-License-Identifier: MIT */
/* cancel.h - for threads that tests cancel. */
#ifndef SKEIN_TEST_RPC_CANCEL_H
#define SKEIN_TEST_RPC_CANCEL_H

/* A cleanup handler. AddressSanitizer does not see that a thread's frames are
 * gone, and takes the C library's next ones for overflows. */
static inline void cancel_frames_gone(void *arg)
{
#ifdef __SANITIZE_ADDRESS__
	void __asan_handle_no_return(void);

	__asan_handle_no_return();
#endif
}

#endif
