/* SPDX-License-Identifier: MIT */
/* two_threads.c - starts a thread: must end where tests/unit/one_thread.c is. */
#include <pthread.h>
#include <stddef.h>

static void *nothing(void *arg)
{
	return arg;
}

int main(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, nothing, NULL))
		return 0;
	pthread_join(thread, NULL);
	return 0;
}
