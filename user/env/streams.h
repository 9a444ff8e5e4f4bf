/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Descriptors 0, 1 and 2, which some callers leave closed. */
#ifndef TUX3_ENV_STREAMS_H
#define TUX3_ENV_STREAMS_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*
 * First thing in main().  Else a volume opened later becomes standard error, to which messages are written, or is replaced by
 * /dev/null when a daemon leaves its terminal.  To use them fails as before: they are open in the wrong direction.
 */
static inline void hold_standard_streams(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDONLY);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd > STDERR_FILENO)
		close(fd);
}

/*
 * The same in a library, whose caller may have closed them: a descriptor that was just opened goes elsewhere, so that nothing the
 * caller prints gets into it, and nothing that he opens in their place takes it away.  -1: as it came, or there are no more.
 */
static inline int beyond_standard_streams(int fd)
{
	int beyond, err;

	if (fd < 0 || fd > STDERR_FILENO)
		return fd;
	beyond = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	err = errno;
	close(fd);
	errno = err;
	return beyond;
}

/* Of a program whose whole work was to say something: status, or failed, with a message, if nobody can have got it. */
static inline int finish_output(const char *program, int status, int failed)
{
	if (!fflush(stdout) && !ferror(stdout))
		return status;
	fprintf(stderr, "%s: The output could not be written: %s.\n", program, strerror(errno));
	return failed;
}

#endif
