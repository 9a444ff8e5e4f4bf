// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Mount options: one table, from which they are parsed and shown.
 *
 * Names and values are those of tux3-fuse.  0 (or false) in struct tux3_options is the default, and is not shown.
 * A remount keeps what it does not mention.
 */
#include <linux/ctype.h>
#include <linux/fs_parser.h>
#include <linux/seq_file.h>
#include "linux/vfs.h"

#define AGE_MS_MAX (3600u * 1000)

enum option_kind {
	OPTION_SECONDS,		/* u32, milliseconds; with a fraction */
	OPTION_SIZE,		/* u64, bytes; with a unit */
	OPTION_NUMBER,		/* u64 */
	OPTION_FLAG,		/* bool */
	OPTION_SWITCH,		/* bool, off with "no" before it */
	OPTION_SWITCH_OFF,	/* bool that says that the switch is off */
	OPTION_SO_ANYWAY,	/* for entries in fstab that served another filesystem: nothing to set; only this value */
};

/*	X(NAME, "name", kind, field of struct tux3_options, "what the value is") */
#define MOUNT_OPTIONS(X) \
	X(AGE,	      "age",	    OPTION_SECONDS,    age_ms,	     "seconds from 0.001 to 3600, as in age=0.5") \
	X(DIRTY,      "dirty",	    OPTION_SIZE,       dirty_bytes,  "a size, as in dirty=64M") \
	X(CACHE,      "cache",	    OPTION_SIZE,       cache_bytes,  "a size, as in cache=128M") \
	X(NAMES,      "names",	    OPTION_NUMBER,     names_cached, "a number above 0, as in names=1000000") \
	X(SNAPSHOT,   "snapshot",   OPTION_SIZE,       snapshot_bytes, "a size, as in snapshot=16M") \
	X(NORECOVERY, "norecovery", OPTION_FLAG,       norecovery,   NULL) \
	X(ACCEPTLAST, "acceptlast", OPTION_FLAG,       acceptlast,   NULL) \
	X(CUTLOG,     "cutlog",	    OPTION_FLAG,       cutlog,	     NULL) \
	X(DISCARD,    "discard",    OPTION_SWITCH,     discard,	     NULL) \
	X(ACL,	      "acl",	    OPTION_SWITCH_OFF, noacl,	     NULL) \
	X(USER_XATTR, "user_xattr", OPTION_SO_ANYWAY,  noacl,	     NULL) \
	X(ERRORS,     "errors",	    OPTION_SO_ANYWAY,  noacl,	     "remount-ro") \
	X(EMERGENCY_RO, "emergency_ro", OPTION_SO_ANYWAY, noacl,     NULL)

enum option_number {
#define X(NAME, name, kind, field, value) NUMBER_##NAME,
	MOUNT_OPTIONS(X)
#undef X
};

static const struct mount_option {
	const char *name;
	enum option_kind kind;
	size_t offset;
	const char *value;
} mount_options[] = {
#define X(NAME, name, kind, field, value) { name, kind, offsetof(struct tux3_options, field), value },
	MOUNT_OPTIONS(X)
#undef X
};

#define OPTION_HAS_VALUE(kind) ((kind) <= OPTION_NUMBER)
#define OPTION_HAS_NO(kind) ((kind) == OPTION_SWITCH || (kind) == OPTION_SWITCH_OFF)

const struct fs_parameter_spec options_spec[] = {
#define X(NAME, option_name, option_kind, field, value) {					\
		.name = option_name,								\
		.opt = NUMBER_##NAME,								\
		.type = (value) ? fs_param_is_string : NULL,					\
		.flags = OPTION_HAS_NO(option_kind) ? fs_param_neg_with_no : 0,			\
	},
	MOUNT_OPTIONS(X)
#undef X
	{ }
};

/* ---- values ---- */

/* The digits at *text, which moves behind them. */
static bool parse_digits(const char **text, u64 *number)
{
	const char *at = *text;

	*number = 0;
	for (; isdigit(*at); at++) {
		if (*number > (U64_MAX - 9) / 10)
			return false;
		*number = *number * 10 + (*at - '0');
	}
	if (at == *text)
		return false;
	*text = at;
	return true;
}

static bool parse_seconds(const char *text, u32 *ms)
{
	u64 number;
	u32 unit;

	if (!parse_digits(&text, &number) || number > AGE_MS_MAX / 1000)
		return false;
	number *= 1000;
	if (*text == '.') {
		text++;
		for (unit = 100; isdigit(*text); text++, unit /= 10)
			number += unit * (*text - '0');
	}
	*ms = number;
	return !*text && number && number <= AGE_MS_MAX;
}

static const char size_units[] = "KMGT";

static bool parse_size(const char *text, u64 *bytes)
{
	unsigned int shift = 0;
	const char *unit;

	if (!parse_digits(&text, bytes))
		return false;
	if (*text) {
		unit = strchr(size_units, toupper(*text++));
		if (!unit || *text)
			return false;
		shift = 10 * (unit - size_units + 1);
	}
	if (!*bytes || *bytes >> (62 - shift))
		return false;
	*bytes <<= shift;
	return true;
}

static bool parse_value(enum option_kind kind, const char *text, void *field)
{
	u64 number;

	switch (kind) {
	case OPTION_SECONDS:
		return parse_seconds(text, field);
	case OPTION_SIZE:
		return parse_size(text, field);
	default:
		if (!parse_digits(&text, &number) || *text || !number || number > S64_MAX)
			return false;
		*(u64 *)field = number;
		return true;
	}
}

int options_parse(struct fs_context *fc, struct fs_parameter *param)
{
	struct fs_parse_result result;
	const struct mount_option *option;
	int number = fs_parse(fc, options_spec, param, &result);
	void *field;

	if (number < 0)
		return number;
	option = &mount_options[number];
	if (option->kind == OPTION_SO_ANYWAY) {
		if (option->value && strcmp(param->string, option->value))
			return invalfc(fc, "mount option %s: '%s' cannot be chosen: it is always %s", option->name,
				       param->string, option->value);
		return 0;
	}
	field = fc->fs_private + option->offset;
	if (!OPTION_HAS_VALUE(option->kind))
		*(bool *)field = result.negated == (option->kind == OPTION_SWITCH_OFF);
	else if (!parse_value(option->kind, param->string, field))
		return invalfc(fc, "mount option %s: '%s' is not a value it can take: %s", option->name, param->string,
			       option->value);
	return 0;
}

/* ---- showing ---- */

static void show_seconds(struct seq_file *seq, u32 ms)
{
	u32 part = ms % 1000, digits = 3;

	seq_printf(seq, "%u", ms / 1000);
	if (!part)
		return;
	for (; part % 10 == 0; part /= 10)
		digits--;
	seq_printf(seq, ".%0*u", digits, part);
}

static void show_size(struct seq_file *seq, u64 bytes)
{
	unsigned int unit = 0;

	for (; unit < strlen(size_units) && bytes % 1024 == 0; unit++)
		bytes /= 1024;
	seq_printf(seq, "%llu", bytes);
	if (unit)
		seq_putc(seq, size_units[unit - 1]);
}

static void show_option(struct seq_file *seq, const struct mount_option *option, const void *field)
{
	const char *no = option->kind == OPTION_SWITCH_OFF ? "no" : "";

	if (option->kind == OPTION_SO_ANYWAY)
		return;
	if (!OPTION_HAS_VALUE(option->kind)) {
		if (*(const bool *)field)
			seq_printf(seq, ",%s%s", no, option->name);
		return;
	}
	if (option->kind == OPTION_SECONDS ? !*(const u32 *)field : !*(const u64 *)field)
		return;
	seq_printf(seq, ",%s=", option->name);
	if (option->kind == OPTION_SECONDS)
		show_seconds(seq, *(const u32 *)field);
	else if (option->kind == OPTION_SIZE)
		show_size(seq, *(const u64 *)field);
	else
		seq_printf(seq, "%llu", *(const u64 *)field);
}

/* A remount may change them beside us: then one is shown as it was or as it will be. */
int options_show(struct seq_file *seq, struct dentry *root)
{
	const void *options = &sb_of(root->d_sb)->options;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(mount_options); i++)
		show_option(seq, &mount_options[i], options + mount_options[i].offset);
	/* As ext4 shows it: changes are refused, though nobody has remounted.  mount(8) gives it back in a remount. */
	if (sb_of(root->d_sb)->vol && volume_error(sb_of(root->d_sb)->vol))
		seq_puts(seq, ",emergency_ro");
	return 0;
}
