/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tux3 show features: a line for each, those that this build does not know last, by their bits. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "tux3_features.h"
#include "user/lib/statistics.h"

static const char *const kinds[] = {
	[TUX3_COMPAT] = "compatible", [TUX3_RO_COMPAT] = "read-only", [TUX3_INCOMPAT] = "incompatible",
};

/* Who does not know it: what he may do. */
static const char *const others[] = {
	[TUX3_COMPAT] = "read and write", [TUX3_RO_COMPAT] = "read", [TUX3_INCOMPAT] = "nothing",
};

static void feature_show(struct stream *stream, const struct feature_row *row, const u64 *set)
{
	struct show_buffer *out = stream_begin(stream);

	show_begin(out, NULL);
	show_string(out, "name", row->name);
	if (set)
		show_bool(out, "set", set[row->word] & row->bit);
	show_bool(out, "default", row->on);
	show_string(out, "kind", kinds[row->word]);
	show_string(out, "others_may", others[row->word]);
	show_u64(out, "format", row->format);
	show_string(out, "module", row->module);
	show_string(out, "what", row->what);
	show_end(out);
	stream_end(stream);
}

static void unknown_show(struct stream *stream, unsigned int word, unsigned int bit)
{
	struct show_buffer *out = stream_begin(stream);

	show_begin(out, NULL);
	show_string(out, "name", "unknown");
	show_bool(out, "set", true);
	show_string(out, "kind", kinds[word]);
	show_string(out, "others_may", others[word]);
	show_u64(out, "bit", bit);
	show_string(out, "what", "a newer version knows it");
	show_end(out);
	stream_end(stream);
}

void features_show(struct stream *stream, const u64 *set)
{
	const struct feature_row *row;
	unsigned int i, word;

	for (i = 0; (row = feature_row(i)); i++)
		feature_show(stream, row, set);
	for (word = 0; set && word < TUX3_FEATURE_WORDS; word++)
		for (i = 0; i < 64; i++)
			if (set[word] & ~tux3_features_known(word) & 1ull << i)
				unknown_show(stream, word, i);
}

int features_known(bool json)
{
	struct stream stream;

	if (!stream_init(&stream, json))
		return EXIT_FAILED;
	features_show(&stream, NULL);
	return stream_exit(&stream);
}

static bool find_number(const char *text, const char *name, u64 *value)
{
	size_t len = strlen(name);

	for (; *text; text += strcspn(text, "\n"), text += *text == '\n') {
		if (strncmp(text, name, len) || text[len] != ' ')
			continue;
		*value = strtoull(text + len, NULL, 10);
		return true;
	}
	return false;
}

int features_of_mounted(const char *path, u64 *set)
{
	static const char *const names[] = {
		[TUX3_COMPAT] = "features_compat", [TUX3_RO_COMPAT] = "features_ro_compat", [TUX3_INCOMPAT] = "features_incompat",
	};
	char text[TUX3_STATISTICS_MAX + 1];
	unsigned int word;
	struct stat st;
	ssize_t len;

	if (stat(path, &st)) {
		tool_error("%s: %m", path);
		return EXIT_FAILED;
	}
	len = command_ask_mounted(path, st.st_dev, text, TUX3_STATISTICS_MAX);
	if (len < 0)
		return EXIT_FAILED;
	text[len] = 0;
	for (word = 0; word < TUX3_FEATURE_WORDS; word++) {
		if (!find_number(text, names[word], &set[word])) {
			tool_error("What has %s mounted is too old to tell its features: unmount it, and ask the device.", path);
			return EXIT_FAILED;
		}
	}
	return EXIT_CLEAN;
}

int features_mounted(const char *path, bool json)
{
	u64 set[TUX3_FEATURE_WORDS];
	struct stream stream;
	int status = features_of_mounted(path, set);

	if (status)
		return status;
	if (!stream_init(&stream, json))
		return EXIT_FAILED;
	features_show(&stream, set);
	return stream_exit(&stream);
}
