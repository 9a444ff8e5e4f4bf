/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Profiles are small text files, NAME.conf: lines "key = value", and comments with # before them.
 *
 *	about = Linux 6.12		for people
 *	format = 1			the highest version of the format that is understood
 *	features = data-csum quota	which a volume may have
 *
 * A feature that this build does not know is none that it could switch on, so its name is passed over: the file is of a later
 * version.  They are looked for where this program is installed, and beside the build.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "mkfs_profile.h"

#define SUFFIX	".conf"

/* From the folder of the program: installed; build/; build/VARIANT/. */
static const char *const folders[] = { "../share/tux3/profiles", "../share/profiles", "../../share/profiles" };

static const char *profile_folder(unsigned int i, char *text, size_t size)
{
	char program[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", program, sizeof(program) - 1);

	if (len < 0)
		len = 0;
	program[len] = 0;
	if (strrchr(program, '/'))
		*strrchr(program, '/') = 0;
	snprintf(text, size, "%s/%s", program, folders[i]);
	return text;
}

/* ENOTSUP: neither a file nor a pipe.  A device may have no end. */
static FILE *file_open(const char *path)
{
	FILE *file = fopen(path, "re");
	struct stat st;

	if (!file || (!fstat(fileno(file), &st) && (S_ISREG(st.st_mode) || S_ISFIFO(st.st_mode))))
		return file;
	fclose(file);
	errno = ENOTSUP;
	return NULL;
}

static FILE *profile_open(const char *name, struct profile *profile)
{
	char folder[PATH_MAX + 64];
	FILE *file = NULL;
	unsigned int i;

	if (strchr(name, '/')) {
		snprintf(profile->path, sizeof(profile->path), "%s", name);
		return file_open(name);
	}
	for (i = 0; i < ARRAY_SIZE(folders) && !file; i++) {
		if (snprintf(profile->path, sizeof(profile->path), "%s/%s" SUFFIX, profile_folder(i, folder, sizeof(folder)),
			     name) >= sizeof(profile->path))
			return NULL;
		file = file_open(profile->path);
	}
	return file;
}

static int is_profile(const struct dirent *entry)
{
	size_t len = strlen(entry->d_name);

	return len > strlen(SUFFIX) && !strcmp(entry->d_name + len - strlen(SUFFIX), SUFFIX);
}

/* Which there are: those of the first folder that has any. */
static int profile_unknown(const char *name)
{
	char folder[PATH_MAX + 64], names[1024] = "";
	struct dirent **entries;
	unsigned int i;
	int count = 0, k;

	for (i = 0; i < ARRAY_SIZE(folders) && !*names; i++) {
		count = scandir(profile_folder(i, folder, sizeof(folder)), &entries, is_profile, alphasort);
		for (k = 0; k < count; k++) {
			size_t used = strlen(names);

			snprintf(names + used, sizeof(names) - used, " %.*s", (int)(strlen(entries[k]->d_name) - strlen(SUFFIX)),
				 entries[k]->d_name);
			free(entries[k]);
		}
		if (count >= 0)
			free(entries);
	}
	if (!*names)
		return tool_usage("There is no profile \"%s\", nor any other: they are installed in share/tux3/profiles.", name);
	return tool_usage("There is no profile \"%s\"; there are:%s.", name, names);
}

static void may_have(struct profile *profile, const char *name)
{
	const struct feature_row *row;
	unsigned int i;

	for (i = 0; (row = feature_row(i)); i++)
		if (!strcmp(row->name, name))
			profile->may[row->word] |= row->bit;
}

/* Cut off spaces at both ends. */
static char *trimmed(char *text)
{
	char *end;

	text += strspn(text, " \t");
	end = text + strlen(text);
	while (end > text && strchr(" \t\r\n", end[-1]))
		*--end = 0;
	return text;
}

/* One line; false: it is none of a profile. */
static bool profile_line(struct profile *profile, char *line)
{
	char *key, *value, *state, *name;

	line[strcspn(line, "#")] = 0;
	key = trimmed(line);
	if (!*key)
		return true;
	value = strchr(key, '=');
	if (!value)
		return false;
	*value++ = 0;
	key = trimmed(key);
	value = trimmed(value);
	if (!strcmp(key, "about"))
		return true;
	if (!strcmp(key, "format"))
		return parse_number(value, &profile->format) && profile->format;
	if (strcmp(key, "features"))
		return false;
	for (name = strtok_r(value, " \t,", &state); name; name = strtok_r(NULL, " \t,", &state))
		may_have(profile, name);
	return true;
}

int profile_load(const char *name, struct profile *profile)
{
	unsigned int number = 0;
	char *line = NULL;
	size_t room = 0;
	FILE *file;
	int ret = 0;

	memset(profile, 0, sizeof(*profile));
	errno = 0;
	file = profile_open(name, profile);
	if (!file) {
		if (strchr(name, '/') || errno != ENOENT)
			return tool_usage("The profile %s cannot be read: %s.", profile->path,
					  errno == ENOTSUP ? "it is no file" : strerror(errno));
		return profile_unknown(name);
	}
	while (!ret && getline(&line, &room, file) > 0) {
		number++;
		if (!profile_line(profile, line))
			ret = tool_usage("%s, line %u: a profile has lines \"about = TEXT\", \"format = NUMBER\" and \"features = NAME...\".",
					 profile->path, number);
	}
	if (!ret && ferror(file))
		ret = tool_usage("The profile %s cannot be read: %s.", profile->path, strerror(errno));
	if (!ret && !profile->format)
		ret = tool_usage("%s does not say which format it is for: \"format = %u\".", profile->path, TUX3_FORMAT_VERSION);
	free(line);
	fclose(file);
	if (!ret && profile->format < TUX3_FORMAT_VERSION)
		ret = tool_usage("The profile %s is for format version %llu, and this program makes version %u: take an older one.",
				 profile->path, (unsigned long long)profile->format, TUX3_FORMAT_VERSION);
	return ret;
}
