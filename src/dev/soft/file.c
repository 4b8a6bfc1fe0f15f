/* SPDX-License-Identifier: MIT */
/* file.c - the table of files, by inode: soft.files, under soft.lock. A file that
 * is in it keeps its inode's number from meaning another file. */
#include "dev/soft/file.h"

#include "dev/soft/soft.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Its status, where it can be handed out with off..off+len. */
static bool good(int fd, uint64_t off, size_t len, struct stat *st)
{
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals >= 0 && !(seals & F_SEAL_SHRINK) && !(seals & F_SEAL_SEAL) &&
	    !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK))
		seals |= F_SEAL_SHRINK;
	return seals >= 0 && seals & F_SEAL_SHRINK && !fstat(fd, st) &&
	       off <= (uint64_t)st->st_size &&
	       len <= (uint64_t)st->st_size - off;
}

static struct soft_file **bucket(struct soft *s, uint64_t ino)
{
	return &s->files[ino % SOFT_FILES];
}

/* soft.lock is held. */
static struct soft_file *find(struct soft *s, const struct soft_file *like)
{
	struct soft_file *f = *bucket(s, like->ino);

	while (f && (f->ino != like->ino || f->dev != like->dev ||
		     f->mode != like->mode))
		f = f->next;
	return f;
}

/* The same, made if it is not there. */
static struct soft_file *find_or_add(struct soft *s, int fd,
				     const struct soft_file *like)
{
	struct soft_file *f = find(s, like);

	if (f) {
		f->refs++;
		return f;
	}
	f = env_alloc(s->env, sizeof(*f));
	if (!f)
		return NULL;
	*f = *like;
	f->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (f->fd < 0) {
		env_free(s->env, f);
		return NULL;
	}
	f->refs = 1;
	f->next = *bucket(s, f->ino);
	*bucket(s, f->ino) = f;
	return f;
}

struct soft_file *soft_file_get(struct soft *s, int fd, uint64_t off,
				size_t len)
{
	struct soft_file like = {0}, *f;
	struct stat st;

	if (!good(fd, off, len, &st))
		return NULL;
	like.dev = st.st_dev;
	like.ino = st.st_ino;
	like.mode = fcntl(fd, F_GETFL) & O_ACCMODE;
	pthread_mutex_lock(&s->lock);
	f = find_or_add(s, fd, &like);
	pthread_mutex_unlock(&s->lock);
	return f;
}

void soft_file_put(struct soft *s, struct soft_file *f)
{
	struct soft_file **at;

	if (!f)
		return;
	pthread_mutex_lock(&s->lock);
	if (--f->refs) {
		pthread_mutex_unlock(&s->lock);
		return;
	}
	for (at = bucket(s, f->ino); *at != f; at = &(*at)->next)
		;
	*at = f->next;
	pthread_mutex_unlock(&s->lock);
	close(f->fd);
	env_free(s->env, f);
}
