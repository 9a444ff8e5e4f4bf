// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Mount options: one table, from which they are parsed and shown.
 *
 * Names and values are those of tux3-fuse.  0 (or false) in struct tux3_options is the default, and is not shown.
 * A remount keeps what it does not mention.
 */
#include <linux/fs_parser.h>
#include <linux/seq_file.h>
#include "core/options.h"
#include "linux/vfs.h"

/*	X(NAME, "name", kind, field of struct tux3_options, "what the value is") */
#define MOUNT_OPTIONS(X) \
	X(AGE,	      "age",	    OPTION_SECONDS,    age_ms,	     OPTION_VALUE_AGE) \
	X(DIRTY,      "dirty",	    OPTION_SIZE,       dirty_bytes,  OPTION_VALUE_DIRTY) \
	X(CACHE,      "cache",	    OPTION_SIZE,       cache_bytes,  OPTION_VALUE_CACHE) \
	X(NAMES,      "names",	    OPTION_NUMBER,     names_cached, OPTION_VALUE_NAMES) \
	X(FSYNC,      "fsync",	    OPTION_FSYNC,      fsync,	     OPTION_VALUE_FSYNC) \
	X(SNAPSHOT,   "snapshot",   OPTION_SIZE,       snapshot_bytes, "a size, as in snapshot=16M") \
	X(NORECOVERY, "norecovery", OPTION_FLAG,       norecovery,   NULL) \
	X(ACCEPTLAST, "acceptlast", OPTION_FLAG,       acceptlast,   NULL) \
	X(CUTLOG,     "cutlog",	    OPTION_FLAG,       cutlog,	     NULL) \
	X(DISCARD,    "discard",    OPTION_SWITCH,     discard,	     NULL) \
	X(ACL,	      "acl",	    OPTION_SWITCH_OFF, noacl,	     NULL) \
	X(QUOTA,      "quota",	    OPTION_SWITCH_OFF, noquota,	     NULL) \
	X(COSTS,      "costs",	    OPTION_FLAG,       costs,	     NULL) \
	X(USRQUOTA,   "usrquota",   OPTION_SO_ANYWAY,  noquota,	     NULL) \
	X(GRPQUOTA,   "grpquota",   OPTION_SO_ANYWAY,  noquota,	     NULL) \
	X(PRJQUOTA,   "prjquota",   OPTION_SO_ANYWAY,  noquota,	     NULL) \
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

/* The VFS's own messages about a value that is missing, or too many, do not say which. */
static int check_value(struct fs_context *fc, const struct fs_parameter *param)
{
	bool has_value = param->type != fs_value_is_flag;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(mount_options); i++) {
		const struct mount_option *option = &mount_options[i];

		if (strcmp(param->key, option->name))
			continue;
		if (option->value && !has_value)
			return invalfc(fc, OPTION_NEEDS_VALUE, option->name, option->value);
		if (!option->value && has_value)
			return invalfc(fc, OPTION_TAKES_NO_VALUE, option->name);
	}
	return 0;
}

int options_parse(struct fs_context *fc, struct fs_parameter *param)
{
	struct fs_parse_result result;
	const struct mount_option *option;
	int number = check_value(fc, param);
	void *field;

	if (!number)
		number = fs_parse(fc, options_spec, param, &result);
	if (number < 0)
		return number;
	option = &mount_options[number];
	if (option->kind == OPTION_SO_ANYWAY) {
		if (option->value && strcmp(param->string, option->value))
			return invalfc(fc, OPTION_ALWAYS_SO, option->name, param->string, option->value);
		return 0;
	}
	field = fc->fs_private + option->offset;
	if (!OPTION_HAS_VALUE(option->kind))
		*(bool *)field = result.negated == (option->kind == OPTION_SWITCH_OFF);
	else if (!option_parse_value(option->kind, param->string, field))
		return invalfc(fc, OPTION_BAD_VALUE, option->name, param->string, option->value);
	return 0;
}

/* ---- showing ---- */

static const char size_units[] = "KMGT";

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
	if (option->kind == OPTION_SECONDS || option->kind == OPTION_FSYNC ? !*(const u32 *)field : !*(const u64 *)field)
		return;
	seq_printf(seq, ",%s=", option->name);
	if (option->kind == OPTION_SECONDS)
		show_seconds(seq, *(const u32 *)field);
	else if (option->kind == OPTION_FSYNC)
		seq_puts(seq, option_fsync_words[*(const u32 *)field]);
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
	/* What the quota tools look for. */
	if (quota_kept(&sb_of(root->d_sb)->vol->quota) && !sb_of(root->d_sb)->options.noquota)
		seq_puts(seq, ",usrquota,grpquota,prjquota");
	/* As ext4 shows it: changes are refused, though nobody has remounted.  mount(8) gives it back in a remount. */
	if (sb_of(root->d_sb)->vol && volume_error(sb_of(root->d_sb)->vol))
		seq_puts(seq, ",emergency_ro");
	return 0;
}
