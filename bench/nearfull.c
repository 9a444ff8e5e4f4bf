// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Many tasks that write their files again and again.  bench/run nearfull runs it.
 *
 *	nearfull DIR TASKS BYTES ROUNDS
 *
 * Each task is a process with a file of its own of BYTES bytes: in each round it is truncated and written in pieces of 1 KiB.
 * All begin together.  Exit status 1, and a sentence, if any of them got an error.
 */
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

#define PIECE 1024u

static int task(const char *path, uint64_t bytes, unsigned int rounds)
{
	static char piece[PIECE];

	memset(piece, 'x', sizeof(piece));
	for (unsigned int round = 0; round < rounds; round++) {
		int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

		if (fd < 0)
			return errno;
		for (uint64_t at = 0; at < bytes; at += PIECE)
			if (write(fd, piece, PIECE) != PIECE)
				return errno ? errno : EIO;
		if (close(fd))
			return errno;
	}
	return 0;
}

int main(int argc, char **argv)
{
	unsigned int tasks, rounds, failed = 0;
	int start[2], status, error = 0;
	uint64_t bytes;
	char path[4096], byte;

	if (argc != 5)
		die("Usage: nearfull DIR TASKS BYTES ROUNDS");
	tasks = strtoul(argv[2], NULL, 10);
	bytes = strtoull(argv[3], NULL, 10);
	rounds = strtoul(argv[4], NULL, 10);
	if (pipe(start))
		die("pipe: %s", strerror(errno));
	for (unsigned int i = 0; i < tasks; i++) {
		pid_t child = fork();

		if (child < 0)
			die("fork: %s", strerror(errno));
		if (child)
			continue;
		close(start[1]);
		snprintf(path, sizeof(path), "%s/task%u", argv[1], i);
		/* Ends when the last writer of the pipe, who waits for all to be there, closes it. */
		if (read(start[0], &byte, 1) < 0)
			_exit(errno);
		_exit(task(path, bytes, rounds));
	}
	close(start[1]);
	while (wait(&status) >= 0) {
		if (!WIFEXITED(status) || WEXITSTATUS(status)) {
			failed++;
			error = WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
		}
	}
	if (!failed)
		return 0;
	fprintf(stderr, "%u of %u tasks: %s\n", failed, tasks, strerror(error));
	return 1;
}
