/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Writing and reading undo files: see undo_file.h.
 *
 * A crash may leave any of the records that were not durable yet, in any order.  None of them counts: what they are for
 * was not written to the device.  A record that is damaged and was durable is another matter: then not all could be put back,
 * and nothing is.  The difference is that a later record says so (`durable`), which is searched for.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "undo_file.h"

#define STEP 512u		/* records begin at multiples of this */

static u32 crc_of(const void *data, size_t bytes)
{
	return crc32c(~0u, data, bytes);
}

static u32 header_crc(const struct disk_undo *header)
{
	struct disk_undo copy = *header;

	copy.crc = 0;
	return crc_of(&copy, sizeof(copy));
}

static u32 record_crc(const struct disk_undo_record *record)
{
	struct disk_undo_record copy = *record;

	copy.crc = 0;
	return crc_of(&copy, sizeof(copy));
}

/* ---- writing ---- */

static int write_failed(struct undo_file *file, int err, const char *what)
{
	pr_err("%s: the undo file cannot be %s: %s\n", file->path, what, strerror(err));
	if (!file->err)
		file->err = -err;
	return -err;
}

static int write_at(struct undo_file *file, u64 at, const void *data, size_t bytes)
{
	const char *from = data;

	while (bytes) {
		ssize_t done = pwrite(file->fd, from, bytes, at);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return write_failed(file, done ? errno : ENOSPC, "written");
		from += done;
		at += done;
		bytes -= done;
	}
	return 0;
}

static int write_header(struct undo_file *file)
{
	file->header.crc = cpu_to_le32(header_crc(&file->header));
	return write_at(file, 0, &file->header, sizeof(file->header));
}

int undo_file_sync(struct undo_file *file)
{
	if (TEMP_FAILURE_RETRY(fdatasync(file->fd)))
		return write_failed(file, errno, "made durable");
	file->durable = file->seq;
	return 0;
}

static int write_record(struct undo_file *file, struct disk_undo_record *record, const void *data, u32 bytes)
{
	int err;

	record->magic = cpu_to_le64(UNDO_RECORD_MAGIC);
	record->file_id = file->header.file_id;
	record->seq = cpu_to_le64(file->seq + 1);
	record->durable = cpu_to_le64(file->durable);
	record->bytes = cpu_to_le32(bytes);
	record->data_crc = cpu_to_le32(crc_of(data, bytes));
	record->crc = cpu_to_le32(record_crc(record));
	err = write_at(file, file->end, record, sizeof(*record));
	if (!err && bytes)
		err = write_at(file, file->end + sizeof(*record), data, bytes);
	if (err)
		return err;
	file->end += sizeof(*record) + bytes;
	file->seq++;
	file->saved_bytes += bytes;
	return 0;
}

int undo_file_append(struct undo_file *file, u64 offset, const void *data, u32 bytes)
{
	struct disk_undo_record record = { .kind = cpu_to_le32(UNDO_KIND_BYTES), .offset = cpu_to_le64(offset) };

	return write_record(file, &record, data, bytes);
}

int undo_file_end(struct undo_file *file, const struct undo_left *left)
{
	struct disk_undo_record record = { .kind = cpu_to_le32(UNDO_KIND_END), .left = *left };
	int err = write_record(file, &record, "", 0);

	return err ? err : undo_file_sync(file);
}

int undo_file_set_state(struct undo_file *file, enum undo_state state)
{
	int err;

	file->header.state = cpu_to_le32(state);
	err = write_header(file);
	return err ? err : undo_file_sync(file);
}

/* Else a crash may leave a device that was changed, and no undo file. */
static int sync_folder(const char *path)
{
	char *copy = strdup(path);
	int fd = copy ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	int err = fd < 0 || TEMP_FAILURE_RETRY(fsync(fd)) ? -errno : 0;

	if (fd >= 0)
		close(fd);
	free(copy);
	return err;
}

static struct undo_file *new_file(const char *path)
{
	struct undo_file *file = kzalloc(sizeof(*file), GFP_KERNEL);

	if (!file)
		return NULL;
	file->fd = -1;
	file->path = kmemdup(path, strlen(path) + 1, GFP_KERNEL);
	if (file->path)
		return file;
	kfree(file);
	return NULL;
}

int undo_file_create(const char *path, u64 device_bytes, const u8 *uuid, u64 volume_id, const struct undo_left *before,
		     struct undo_file **filep, char *why, size_t why_size)
{
	struct undo_file *file = new_file(path);
	struct timespec64 now;
	int err;

	if (!file) {
		snprintf(why, why_size, "not enough memory for an undo file");
		return -ENOMEM;
	}
	ktime_get_real_ts64(&now);
	file->header = (struct disk_undo){
		.magic = cpu_to_le64(UNDO_MAGIC), .version = cpu_to_le32(UNDO_VERSION),
		.file_id = cpu_to_le64(get_random_u64()), .device_bytes = cpu_to_le64(device_bytes),
		.volume_id = cpu_to_le64(volume_id), .unit = cpu_to_le32(UNDO_UNIT),
		.created_ns = cpu_to_le64(now.tv_sec * NSEC_PER_SEC + now.tv_nsec),
	};
	if (before)
		file->header.before = *before;
	if (uuid)
		memcpy(file->header.uuid, uuid, sizeof(file->header.uuid));
	file->end = sizeof(file->header);
	file->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (file->fd < 0) {
		err = -errno;
		snprintf(why, why_size, err == -EEXIST ? "%s exists already: choose another name for the undo file" :
			 "the undo file %s cannot be made: %s", path, strerror(-err));
		undo_file_close(file);
		return err;
	}
	err = write_header(file) ?: undo_file_sync(file) ?: sync_folder(path);
	if (err) {
		snprintf(why, why_size, "the undo file %s cannot be written: %s", path, strerror(-err));
		unlink(path);
		undo_file_close(file);
		return err;
	}
	*filep = file;
	return 0;
}

void undo_file_close(struct undo_file *file)
{
	if (file->fd >= 0)
		close(file->fd);
	kvfree(file->places);
	kfree(file->path);
	kfree(file);
}

/* ---- reading ---- */

/* 0, -ENODATA: the file ends before; or -errno. */
static int read_at(struct undo_file *file, u64 at, void *data, size_t bytes)
{
	char *to = data;

	while (bytes) {
		ssize_t done = pread(file->fd, to, bytes, at);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return done ? -errno : -ENODATA;
		to += done;
		at += done;
		bytes -= done;
	}
	return 0;
}

int undo_file_read(struct undo_file *file, const struct undo_place *place, void *data)
{
	return read_at(file, place->at, data, place->bytes);
}

static int add_place(struct undo_file *file, const struct undo_place *place)
{
	u64 room = max_t(u64, 2 * file->room, 256);
	struct undo_place *more;

	if (file->count == file->room) {
		more = kvmalloc(room * sizeof(*more), GFP_KERNEL);
		if (!more)
			return -ENOMEM;
		if (file->count)
			memcpy(more, file->places, file->count * sizeof(*more));
		kvfree(file->places);
		file->places = more;
		file->room = room;
	}
	file->places[file->count++] = *place;
	file->saved_bytes += place->bytes;
	return 0;
}

static bool is_record(const struct undo_file *file, const struct disk_undo_record *record)
{
	return le64_to_cpu(record->magic) == UNDO_RECORD_MAGIC && record->file_id == file->header.file_id &&
	       le32_to_cpu(record->crc) == record_crc(record);
}

static bool is_possible(const struct undo_file *file, const struct disk_undo_record *record)
{
	u64 offset = le64_to_cpu(record->offset), size = le64_to_cpu(file->header.device_bytes);
	u32 bytes = le32_to_cpu(record->bytes), kind = le32_to_cpu(record->kind);

	if (le64_to_cpu(record->seq) != file->seq + 1)
		return false;
	if (kind == UNDO_KIND_END)
		return !bytes;
	return kind == UNDO_KIND_BYTES && bytes && bytes <= UNDO_RECORD_MAX && !(bytes % UNDO_UNIT) &&
	       !(offset % UNDO_UNIT) && offset <= size && bytes <= size - offset;
}

/* The record at file->end.  1: there is none, or it is not whole. */
static int read_record(struct undo_file *file, void *buffer)
{
	struct disk_undo_record record;
	struct undo_place place;
	int err = read_at(file, file->end, &record, sizeof(record));

	if (err)
		return err == -ENODATA ? 1 : err;
	if (!is_record(file, &record) || !is_possible(file, &record))
		return 1;
	place = (struct undo_place){
		.offset = le64_to_cpu(record.offset), .bytes = le32_to_cpu(record.bytes), .at = file->end + sizeof(record),
	};
	err = undo_file_read(file, &place, buffer);
	if (err)
		return err == -ENODATA ? 1 : err;
	if (le32_to_cpu(record.data_crc) != crc_of(buffer, place.bytes))
		return 1;
	file->complete = le32_to_cpu(record.kind) == UNDO_KIND_END;
	if (file->complete)
		file->left = record.left;
	else
		err = add_place(file, &place);
	file->seq++;
	file->end = place.at + place.bytes;
	return err;
}

/* Was the record that should be at file->end durable?  1: another one says so. */
static int was_durable(struct undo_file *file, u64 size)
{
	struct disk_undo_record record;
	u64 at;
	int err;

	for (at = file->end; at + sizeof(record) <= size; at += STEP) {
		err = read_at(file, at, &record, sizeof(record));
		if (err)
			return err;
		if (is_record(file, &record) && le64_to_cpu(record.durable) > file->seq)
			return 1;
	}
	return 0;
}

static int check_header(struct undo_file *file, char *why, size_t why_size)
{
	const struct disk_undo *header = &file->header;
	int err = read_at(file, 0, &file->header, sizeof(file->header));

	if (err && err != -ENODATA) {
		snprintf(why, why_size, "%s cannot be read: %s", file->path, strerror(-err));
		return err;
	}
	if (err || le64_to_cpu(header->magic) != UNDO_MAGIC) {
		snprintf(why, why_size, "%s is no undo file", file->path);
		return -EINVAL;
	}
	if (le32_to_cpu(header->version) > UNDO_VERSION) {
		snprintf(why, why_size, "%s was made by a newer program", file->path);
		return -EOPNOTSUPP;
	}
	if (le32_to_cpu(header->crc) != header_crc(header) || le32_to_cpu(header->unit) != UNDO_UNIT ||
	    le32_to_cpu(header->state) >= UNDO_STATES) {
		snprintf(why, why_size, "the undo file %s is damaged at its beginning: nothing is put back", file->path);
		return -EUCLEAN;
	}
	return 0;
}

static int read_all(struct undo_file *file, char *why, size_t why_size)
{
	void *buffer = kvmalloc(UNDO_RECORD_MAX, GFP_KERNEL);
	struct stat st;
	int err = buffer ? 0 : -ENOMEM;

	if (!err && fstat(file->fd, &st))
		err = -errno;
	file->end = sizeof(file->header);
	while (!err)
		err = read_record(file, buffer);
	kvfree(buffer);
	if (err > 0) {
		file->cut_off = st.st_size > file->end;
		err = was_durable(file, st.st_size);
	}
	if (err > 0) {
		snprintf(why, why_size, "the undo file %s is damaged at offset %llu: nothing is put back", file->path,
			 (unsigned long long)file->end);
		return -EUCLEAN;
	}
	if (err)
		snprintf(why, why_size, "the undo file %s cannot be read: %s", file->path, strerror(-err));
	return err;
}

int undo_file_open(const char *path, struct undo_file **filep, char *why, size_t why_size)
{
	struct undo_file *file = new_file(path);
	struct stat st;
	int err;

	if (!file) {
		snprintf(why, why_size, "not enough memory for the undo file");
		return -ENOMEM;
	}
	/* Before opening: to open a FIFO waits for somebody. */
	if (stat(path, &st) || (file->fd = open(path, S_ISREG(st.st_mode) ? O_RDWR | O_CLOEXEC : O_PATH)) < 0) {
		err = -errno;
		snprintf(why, why_size, "the undo file %s cannot be opened: %s", path, strerror(-err));
	} else if (!S_ISREG(st.st_mode)) {
		err = -EINVAL;
		snprintf(why, why_size, "%s is no undo file", path);
	} else {
		err = check_header(file, why, why_size) ?: read_all(file, why, why_size);
	}
	if (err) {
		undo_file_close(file);
		return err;
	}
	*filep = file;
	return 0;
}
