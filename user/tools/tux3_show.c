/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tux3 show: print any object of a volume. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "commands.h"
#include "tux3_features.h"
#include "core/blocks/freemap.h"
#include "core/format/chain.h"
#include "core/tree/tree_internal.h"
#include "core/format/anchor.h"
#include "core/format/name_hash.h"
#include "core/delta/space.h"
#include "core/log/apply.h"
#include "core/log/replay.h"

const char show_help[] =
"tux3 show IMAGE [OBJECT] [--json]\n"
"tux3 show features [IMAGE|MOUNTPOINT] [--json]\n"
"\n"
"Prints an object of a volume that is not mounted.  Without an object: what the volume is.\n"
"\n"
"  anchors                  all anchor slots, and which one counts\n"
"  log                      the commits of the log, record by record\n"
"  tree                     all tree nodes with what they hold\n"
"  nodes                    all tree nodes, only their headers\n"
"  inode NUMBER             all items of an inode\n"
"  path /A/B                the same for the inode that a path leads to\n"
"  item INODE [TYPE [OFFSET]]  items of one type (attr, parent, inline, xattr, dirent, extent ...)\n"
"  free                     groups in use, and how much of them is free\n"
"  space                    what operations cost in blocks at worst, and what is kept when the volume is full\n"
"  block NUMBER             what is in a block, and who uses it\n"
"  features                 which it has, what each is for, and who understands it; before the image also of a\n"
"                           mounted volume, and without one: all that this build knows\n"
"\n"
"  --json                   a JSON list of objects\n"
"\n"
"Examples:\n"
"  tux3 show disk.img\n"
"  tux3 show disk.img path /etc/passwd\n"
"  tux3 show disk.img log --json | jq '.[].records'\n"
"  tux3 show disk.img item 2 dirent\n"
"  tux3 show features ./mnt\n"
"\n"
"Exit code 0: printed; 1: could not; 16: wrong use.\n";

struct show {
	const char *path;
	struct stream stream;
	struct tool_volume tool;
	struct volume *vol;
	char **args;
	int arg_count;
};

/* ---- the volume ---- */

static int show_volume(struct show *show)
{
	struct volume *vol = show->vol;
	struct show_buffer *out = stream_begin(&show->stream);
	char text[FORMAT_MAX];

	out->separator = "\n";
	show_begin(out, NULL);
	show_bytes(out, "label", vol->label, label_length(vol->label));
	show_string(out, "uuid", format_uuid(text, sizeof(text), vol->uuid));
	show_u64(out, "block_size", vol->block_size);
	show_u64(out, "blocks", vol->total_blocks);
	if (!out->json)
		show_string(out, "size", format_size(text, sizeof(text), vol->total_blocks << vol->block_shift));
	show_string(out, "created", format_time(text, sizeof(text), vol->created_ns));
#define X(WORD, bit, NAME, name, ...) \
	show_bool(out, name, volume_has_feature(vol, TUX3_##WORD, TUX3_FEATURE_##WORD##_##NAME));
	TUX3_FEATURES(X)
#undef X
	show_u64(out, "groups", vol->group_count);
	show_u64(out, "used_blocks", atomic64_read(&vol->balloc.disk_used));
	show_u64(out, "inodes", vol->tree_inodes);
	show_u64(out, "anchor_slot", vol->anchor_slot);
	show_u64(out, "anchor_delta", le64_to_cpu(vol->anchor.delta));
	show_u64(out, "newest_delta", vol->delta.committed);
	show_u64(out, "log_blocks", vol->log.length);
	show_u64(out, "tree_height", vol->tree.root_level + 1);
	show_end(out);
	out->separator = NULL;
	stream_end(&show->stream);
	return EXIT_CLEAN;
}

static int show_anchors(struct show *show)
{
	struct disk_anchor anchor;
	unsigned int n, newest = TUX3_ANCHOR_SLOTS;
	char why[256];
	bool usable = !volume_read_anchor(show->tool.dev, &anchor, &newest, why, sizeof(why));

	for (n = 0; n < TUX3_ANCHOR_SLOTS; n++) {
		int err = volume_read_anchor_slot(show->tool.dev, n, &anchor, why, sizeof(why));
		struct show_buffer *out = stream_begin(&show->stream);

		show_begin(out, NULL);
		show_u64(out, "slot", n);
		show_bool(out, "valid", !err);
		show_bool(out, "current", usable && n == newest);
		if (err)
			show_string(out, "why", why);
		if (out->json && !err) {
			show_printf(out, ", \"anchor\": ");
			out->more = false;
			show_anchor(out, &anchor);
		}
		show_end(out);
		if (!out->json && !err) {
			show_printf(out, "\n");
			out->more = false;
			show_anchor(out, &anchor);
			show_printf(out, "\n");
		}
		stream_end(&show->stream);
	}
	return usable ? EXIT_CLEAN : EXIT_FAILED;
}

/* ---- the log ---- */

static void show_records(struct show *show, const struct log_commit *commit)
{
	struct show_buffer *out = &show->stream.out;
	u32 at = 0, bytes = le32_to_cpu(commit->commit->bytes);
	const struct disk_record *record;
	int ret;

	while ((ret = log_next_record(commit->records, bytes, &at, &record)) > 0) {
		if (!out->json) {
			show_printf(out, "\n  ");
			out->more = false;
		}
		show_record(out, record);
		stream_flush(&show->stream);
	}
	if (ret < 0 && !out->json)
		show_printf(out, "\n  the records end in the middle");
}

static int show_log_commit(void *ctx, const struct log_commit *commit)
{
	struct show *show = ctx;
	struct show_buffer *out = stream_begin(&show->stream);
	u32 i;

	if (!out->json)
		show_printf(out, "commit ");
	else
		show_begin(out, NULL);
	if (out->json) {
		show_printf(out, "\"commit\": ");
		out->more = false;
	}
	show_commit(out, commit->commit);
	show_u64(out, "seq", le64_to_cpu(commit->first->seq));
	show_bool(out, "torn", commit->torn);
	show_list_begin(out, "blocks");
	for (i = 0; i < commit->block_count; i++)
		show_u64(out, NULL, commit->blocks[i]);
	show_list_end(out);
	if (out->json)
		show_list_begin(out, "records");
	show_records(show, commit);
	if (out->json) {
		show_list_end(out);
		show_end(out);
	}
	stream_end(&show->stream);
	return 0;
}

static int show_log(struct show *show)
{
	int err = log_walk(show->vol, show_log_commit, show);

	if (!err)
		return EXIT_CLEAN;
	tool_error("The log cannot be followed to its end: %s.", strerror(-err));
	return EXIT_FAILED;
}

/* ---- space ---- */

static void show_space_row(struct show *show, const struct space_row *row)
{
	struct show_buffer *out = stream_begin(&show->stream);

	show_begin(out, NULL);
	show_u64(out, "items", row->items);
	if (row->extents + row->data + row->promised || out->json) {
		show_u64(out, "extents", row->extents);
		show_u64(out, "data", row->data);
		show_u64(out, "preallocated", row->promised);
	}
	show_u64(out, "blocks", row->price);
	show_u64(out, "blocks_when_full", row->tight_price);
	show_string(out, "may", row->how);
	show_string(out, "operation", row->what);
	show_end(out);
	stream_end(&show->stream);
}

static int show_space(struct show *show)
{
	struct show_buffer *out = stream_begin(&show->stream);
	u64 total, free, available;
	struct space_kept kept;
	struct space_row row;
	u32 i;

	space_get_kept(show->vol, &kept);
	space_stat(show->vol, &total, &free, &available);
	out->separator = "\n";
	show_begin(out, NULL);
	show_u64(out, "blocks", total);
	show_u64(out, "free", free);
	show_u64(out, "available", available);
	show_u64(out, "tree_height", show->vol->tree.root_level + 1);
	show_u64(out, "root_branches", show->vol->space.root_branches);
#define X(name, text) \
	show_s64(out, #name, kept.name); \
	if (!out->json) \
		show_printf(out, "	# %s", text);
	SPACE_KEPT(X)
#undef X
	show_end(out);
	out->separator = NULL;
	stream_end(&show->stream);
	for (i = 0; space_table_row(show->vol, i, &row); i++)
		show_space_row(show, &row);
	return EXIT_CLEAN;
}

/* ---- the tree ---- */

static void show_one_item(struct show *show, const struct tree_key *key, const void *data, u32 len,
			  const char *indent)
{
	struct show_buffer *out = stream_begin(&show->stream);

	if (!out->json)
		show_printf(out, "%s", indent);
	show_item(out, key, data, len);
	stream_end(&show->stream);
}

static void show_node_contents(struct show *show, const struct disk_node *node)
{
	u32 i;

	for (i = 0; i < node_count(node); i++) {
		struct node_key packed = node_level(node) ? inner_key(node, i) : leaf_key(node, i);
		struct tree_key key = node_key_unpack(&packed);
		struct show_buffer *out;

		if (!node_level(node)) {
			show_one_item(show, &key, leaf_data(node, i), leaf_len(node, i), "  ");
			continue;
		}
		out = stream_begin(&show->stream);
		if (!out->json)
			show_printf(out, "  ");
		show_begin(out, NULL);
		show_u64(out, "from_ino", key.ino);
		show_string(out, "type", item_type_name(key.type));
		show_hex(out, "offset", key.offset);
		show_node_addr(out, "block", le64_to_cpu(inner_branches_const(node)[i].addr));
		show_u64(out, "birth", le64_to_cpu(inner_branches_const(node)[i].birth));
		show_end(out);
		stream_end(&show->stream);
	}
}

struct show_walk {
	struct show *show;
	bool contents;
	u64 bad;
};

static int show_visit(void *ctx, const struct tree_visit *visit)
{
	struct show_walk *walk = ctx;
	struct show_buffer *out = stream_begin(&walk->show->stream);

	if (visit->data) {
		show_node(out, visit->data);
		if (visit->dirty && !out->json)
			show_printf(out, " (changed by the log, not on disk)");
		stream_end(&walk->show->stream);
		if (walk->contents)
			show_node_contents(walk->show, visit->data);
		return 0;
	}
	walk->bad++;
	show_begin(out, NULL);
	show_string(out, "object", "bad-node");
	show_node_addr(out, "addr", visit->addr);
	show_u64(out, "level", visit->level);
	show_node_addr(out, "parent", visit->parent_addr);
	show_string(out, "why", visit->why);
	show_end(out);
	stream_end(&walk->show->stream);
	return 0;
}

static int show_nodes(struct show *show, bool contents)
{
	struct show_walk walk = { .show = show, .contents = contents };
	int err = tree_walk(show->vol, show_visit, &walk);

	if (err)
		tool_error("The tree cannot be read to its end: %s.", strerror(-err));
	else if (walk.bad)
		tool_error("%llu tree nodes cannot be used.", (unsigned long long)walk.bad);
	return err || walk.bad ? EXIT_FAILED : EXIT_CLEAN;
}

static int show_tree(struct show *show)
{
	return show_nodes(show, true);
}

static int show_headers(struct show *show)
{
	return show_nodes(show, false);
}

/* ---- items ---- */

struct show_range {
	struct show *show;
	u64 count;
};

static int show_range_item(void *ctx, const struct tree_key *key, const void *data, u32 len)
{
	struct show_range *range = ctx;

	range->count++;
	show_one_item(range->show, key, data, len, "");
	return 0;
}

bool command_inode_is_there(struct volume *vol, u64 ino)
{
	struct tree_key key = tree_key(ino, TUX3_ITEM_ATTR, 0);

	return ino == TUX3_INO_VOLUME || tree_lookup(vol, &key, NULL, 0) != -ENOENT;
}

static int show_items(struct show *show, const struct tree_key *from, const struct tree_key *to)
{
	struct show_range range = { .show = show };
	int err = tree_scan(show->vol, from, to, show_range_item, &range);

	if (err)
		tool_error("Not all items can be read: %s.", strerror(-err));
	else if (!range.count)
		tool_error(command_inode_is_there(show->vol, from->ino) ? "Inode %llu has no such item." : "There is no inode %llu.",
			   (unsigned long long)from->ino);
	return err || !range.count ? EXIT_FAILED : EXIT_CLEAN;
}

static int show_inode_number(struct show *show, u64 ino)
{
	struct tree_key from = tree_key(ino, 0, 0), to = tree_key(ino, U8_MAX, U64_MAX);

	return show_items(show, &from, &to);
}

static int show_inode(struct show *show)
{
	u64 ino;

	if (!parse_number(show->args[0], &ino) || ino > TUX3_INO_MAX)
		return tool_usage("\"%s\" is no inode number.", show->args[0]);
	return show_inode_number(show, ino);
}

static int find_type(const char *name)
{
	unsigned int type;

	for (type = 0; type <= U8_MAX; type++)
		if (item_type_name(type)[0] != '?' && !strcmp(item_type_name(type), name))
			return type;
	return -1;
}

static int show_item_range(struct show *show)
{
	struct tree_key from = { }, to = { .type = U8_MAX, .offset = U64_MAX };
	int type;

	if (!parse_number(show->args[0], &from.ino) || from.ino > TUX3_INO_MAX)
		return tool_usage("\"%s\" is no inode number.", show->args[0]);
	to.ino = from.ino;
	if (show->arg_count > 1) {
		type = find_type(show->args[1]);
		if (type < 0)
			return tool_usage("There is no item type \"%s\".", show->args[1]);
		from.type = to.type = type;
	}
	if (show->arg_count > 2) {
		if (!parse_number(show->args[2], &from.offset))
			return tool_usage("\"%s\" is no offset.", show->args[2]);
		to.offset = from.offset;
	}
	return show_items(show, &from, &to);
}

/* ---- paths ---- */

/* What the name in this directory leads to; 0 and *ino, or -errno. */
static int find_name(struct volume *vol, u64 dir, const char *name, u32 len, u64 *ino)
{
	struct tree_key key = tree_key(dir, TUX3_ITEM_DIRENT, name_hash(vol, dir, TUX3_ITEM_DIRENT, name, len));
	u32 size = TUX3_ITEM_MAX(vol->block_size);
	u8 *data = malloc(size);
	int got = data ? tree_lookup(vol, &key, data, size) : -ENOMEM, err = -ENOENT;
	struct chain chain = chain_of(data, max(got, 0));
	const struct disk_dirent *entry;

	while (err && (entry = chain_next_dirent(&chain))) {
		if (entry->len == len && !memcmp(entry->name, name, len)) {
			*ino = get_unaligned_le64(&entry->ino);
			err = 0;
		}
	}
	free(data);
	return got < 0 ? got : err;
}

static int show_path(struct show *show)
{
	const char *at = show->args[0];
	u64 ino = TUX3_INO_ROOT;
	int err;

	while (*at) {
		u32 len = strcspn(at, "/");

		if (len) {
			err = find_name(show->vol, ino, at, len, &ino);
			if (err) {
				tool_error("%s: %s at \"%.*s\".", show->args[0],
					   err == -ENOENT ? "there is no such name" : strerror(-err), (int)len, at);
				return EXIT_FAILED;
			}
		}
		at += len + !!at[len];
	}
	return show_inode_number(show, ino);
}

/* ---- free space ---- */

static void show_group(struct show *show, u64 group, u32 length, u32 used, u32 runs, u32 longest)
{
	struct show_buffer *out = stream_begin(&show->stream);

	show_begin(out, NULL);
	show_u64(out, "group", group);
	show_u64(out, "start", group * show->vol->group_blocks);
	show_u64(out, "blocks", length);
	show_u64(out, "used", used);
	show_u64(out, "free", length - used);
	show_u64(out, "free_runs", runs);
	show_u64(out, "longest", longest);
	show_end(out);
	stream_end(&show->stream);
}

static void group_count(const u8 *bits, u32 length, u32 *used, u32 *runs, u32 *longest)
{
	u32 i, run = 0;

	*used = *runs = *longest = 0;
	for (i = 0; i < length; i++) {
		if (bits[i / 8] & 1 << i % 8) {
			++*used;
			run = 0;
			continue;
		}
		*runs += !run++;
		*longest = max(*longest, run);
	}
}

static int show_free(struct show *show)
{
	struct volume *vol = show->vol;
	u8 *bits = malloc(vol->block_size);
	u64 group, bad = 0, marked = 0;

	for (group = 0; bits && group < vol->group_count; group++) {
		u32 length = group_length(vol, group), used, runs, longest;

		if (balloc_copy_group(vol, group, bits)) {
			tool_error("The free map of group %llu cannot be used.", (unsigned long long)group);
			bad++;
			continue;
		}
		group_count(bits, length, &used, &runs, &longest);
		marked += used;
		if (used != group_fixed_blocks(vol, group, 0, length))
			show_group(show, group, length, used, runs, longest);
	}
	free(bits);
	if (!show->stream.out.json)
		printf("%llu of %llu blocks in use, %llu in the log; groups that are not listed are empty\n",
		       (unsigned long long)marked, (unsigned long long)vol->total_blocks,
		       (unsigned long long)vol->log.length);
	return bad || !bits ? EXIT_FAILED : EXIT_CLEAN;
}

/* ---- one block ---- */

struct show_owner {
	struct show *show;
	u64 block;
	u64 found;
};

static void show_owner(struct show_owner *owner, const char *what, const struct tree_key *key, u64 at)
{
	struct show_buffer *out = stream_begin(&owner->show->stream);

	owner->found++;
	show_begin(out, NULL);
	show_string(out, "used_by", what);
	if (key) {
		show_u64(out, "inode", key->ino);
		show_u64(out, "file_block", at);
	}
	show_end(out);
	stream_end(&owner->show->stream);
}

static void owner_check_xattr(struct show_owner *owner, const struct tree_key *key, const u8 *data, u32 len)
{
	struct chain chain = chain_of(data, len);
	const struct disk_xattr *entry;
	u32 i;

	while ((entry = chain_next_xattr(&chain))) {
		const struct disk_xattr_piece *piece = (const void *)(entry->name + entry->len);

		for (i = 0; i < entry->pieces; i++, piece++)
			if (owner->block - get_unaligned_le64(&piece->addr) < get_unaligned_le32(&piece->len))
				show_owner(owner, "extended attribute", key, 0);
	}
}

static int owner_visit(void *ctx, const struct tree_visit *visit)
{
	struct show_owner *owner = ctx;
	u32 i;

	if (visit->addr == owner->block)
		show_owner(owner, "tree", NULL, 0);
	if (!visit->data || visit->level)
		return 0;
	for (i = 0; i < node_count(visit->data); i++) {
		struct node_key packed = leaf_key(visit->data, i);
		struct tree_key key = node_key_unpack(&packed);
		const u8 *data = leaf_data(visit->data, i);
		u32 len = leaf_len(visit->data, i);
		u64 addr;

		if (key.type == TUX3_ITEM_XATTR)
			owner_check_xattr(owner, &key, data, len);
		if (key.type != TUX3_ITEM_EXTENT || len < sizeof(struct disk_extent))
			continue;
		addr = get_unaligned_le64(data);
		if (owner->block - addr < get_unaligned_le32(data + offsetof(struct disk_extent, len)))
			show_owner(owner, "file", &key, key.offset + owner->block - addr);
	}
	return 0;
}

static void owner_check_log(struct show_owner *owner, const struct range_list *list)
{
	u32 i;

	for (i = 0; i < list->count; i++)
		if (owner->block - list->ranges[i].addr < list->ranges[i].len)
			show_owner(owner, "log", NULL, 0);
}

static void show_text(struct show *show, const char *name, const char *text)
{
	struct show_buffer *out = stream_begin(&show->stream);

	show_begin(out, NULL);
	show_string(out, name, text);
	show_end(out);
	stream_end(&show->stream);
}

/* A block that has its place from the start.  False: it is not one. */
static bool show_fixed(struct show *show, u64 block, const void *data)
{
	struct volume *vol = show->vol;
	u64 bytes = block << vol->block_shift, group = block / vol->group_blocks;
	struct show_buffer *out;
	char why[256];
	unsigned int n;

	if (!balloc_is_fixed(vol, block))
		return false;
	for (n = 0; n < TUX3_ANCHOR_SLOTS; n++) {
		if (anchor_slot_offset(vol->total_blocks << vol->block_shift, n) != bytes)
			continue;
		show_text(show, "object", "anchor slot");
		out = stream_begin(&show->stream);
		show_anchor(out, data);
		stream_end(&show->stream);
		return true;
	}
	for (n = 0; n < 2; n++) {
		if (balloc_slot_addr(vol, group, n) != block)
			continue;
		out = stream_begin(&show->stream);
		show_map(out, data);
		stream_end(&show->stream);
		if (map_check(vol, data, block, group, why, sizeof(why)))
			show_text(show, "not_valid", why);
		return true;
	}
	show_text(show, "object", "reserved: the boot area, or beside an anchor");
	return true;
}

static void show_by_magic(struct show *show, u64 block, const void *data)
{
	u32 magic = get_unaligned_le32(data);
	char why[256];

	if (magic == TUX3_NODE_MAGIC) {
		show_node(stream_begin(&show->stream), data);
		stream_end(&show->stream);
		if (node_check(show->vol, data, block, 0, -1, why, sizeof(why)))
			show_text(show, "not_valid", why);
		else
			show_node_contents(show, data);
	} else if (magic == TUX3_LOG_MAGIC) {
		show_log_block(stream_begin(&show->stream), data);
		stream_end(&show->stream);
	} else {
		show_text(show, "object", "data, or nothing");
	}
}

static int show_block(struct show *show)
{
	struct show_owner owner = { .show = show };
	struct volume *vol = show->vol;
	void *data;
	int err;

	if (!parse_number(show->args[0], &owner.block))
		return tool_usage("\"%s\" is no block number.", show->args[0]);
	if (owner.block >= vol->total_blocks) {
		tool_error("The volume has %llu blocks.", (unsigned long long)vol->total_blocks);
		return EXIT_FAILED;
	}
	data = malloc(vol->block_size);
	err = data ? device_read(vol->dev, owner.block, 1, data) : -ENOMEM;
	if (err) {
		tool_error("Block %llu cannot be read: %s.", (unsigned long long)owner.block, strerror(-err));
		free(data);
		return EXIT_FAILED;
	}
	if (!show_fixed(show, owner.block, data)) {
		show_by_magic(show, owner.block, data);
		err = balloc_test(vol, owner.block, 1);
		show_text(show, "free_map", err > 0 ? "in use" : err ? "cannot be read" : "free");
		tree_walk(vol, owner_visit, &owner);
		owner_check_log(&owner, &vol->log.old_blocks);
		owner_check_log(&owner, &vol->log.blocks);
		if (owner.block == vol->log.next_addr || owner.block == vol->log.after_addr)
			show_owner(&owner, "log, later", NULL, 0);
		if (!owner.found)
			show_text(show, "used_by", "nothing");
	}
	free(data);
	return EXIT_CLEAN;
}

/* ---- features ---- */

/* From the anchor: also of a volume that cannot be opened, maybe for just that reason. */
static int show_features(struct show *show)
{
	struct disk_anchor anchor;
	unsigned int newest;
	char why[256];

	if (volume_read_anchor(show->tool.dev, &anchor, &newest, why, sizeof(why)))
		return EXIT_FAILED;
	features_show(&show->stream, (const u64[]) {
		[TUX3_COMPAT] = le64_to_cpu(anchor.feature_compat), [TUX3_RO_COMPAT] = le64_to_cpu(anchor.feature_ro_compat),
		[TUX3_INCOMPAT] = le64_to_cpu(anchor.feature_incompat),
	});
	return EXIT_CLEAN;
}

/* ---- the command ---- */

static const struct {
	const char *name;
	int (*show)(struct show *show);
	int min_args, max_args;
	bool device_only;	/* needs no volume that can be opened */
} objects[] = {
	{ "volume", show_volume, 0, 0, false },
	{ "anchors", show_anchors, 0, 0, true },
	{ "log", show_log, 0, 0, false },
	{ "tree", show_tree, 0, 0, false },
	{ "nodes", show_headers, 0, 0, false },
	{ "inode", show_inode, 1, 1, false },
	{ "path", show_path, 1, 1, false },
	{ "item", show_item_range, 1, 3, false },
	{ "free", show_free, 0, 0, false },
	{ "space", show_space, 0, 0, false },
	{ "block", show_block, 1, 1, false },
	{ "features", show_features, 0, 0, true },
};

static int show_object(struct show *show, const char *name)
{
	unsigned int i;
	int ret;

	for (i = 0; i < ARRAY_SIZE(objects); i++)
		if (!strcmp(objects[i].name, name))
			break;
	if (i == ARRAY_SIZE(objects))
		return tool_usage("There is no object \"%s\"; see tux3 help show.", name);
	if (show->arg_count < objects[i].min_args || show->arg_count > objects[i].max_args)
		return tool_usage("\"show %s\" has the wrong number of arguments; see tux3 help show.", name);
	ret = command_open(show->path, &show->tool);
	show->vol = show->tool.vol;
	if (!ret || (objects[i].device_only && show->tool.dev)) {
		if (!stream_init(&show->stream, show->stream.out.json))
			return EXIT_FAILED;
		ret = objects[i].show(show);
		ret = stream_exit(&show->stream) ?: ret;
	}
	tool_close(&show->tool);
	return ret;
}

static bool is_directory(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

int command_show(int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ }
	};
	struct show show = { };
	int option;

	while ((option = getopt_long(argc, argv, "jh", options, NULL)) != -1) {
		if (option == 'h')
			return tool_tell(show_help, EXIT_FAILED);
		if (option != 'j')
			return tool_usage("See tux3 help show.");
		show.stream.out.json = true;
	}
	if (optind == argc)
		return tool_usage("Which image?");
	if (!strcmp(argv[optind], "features") && argc - optind < 3) {
		if (argc - optind == 1)
			return features_known(show.stream.out.json);
		if (is_directory(argv[optind + 1]))
			return features_mounted(argv[optind + 1], show.stream.out.json);
		show.path = argv[optind + 1];
		return show_object(&show, argv[optind]);
	}
	show.path = argv[optind];
	show.args = argv + min(optind + 2, argc);
	show.arg_count = max(argc - optind - 2, 0);
	return show_object(&show, optind + 1 < argc ? argv[optind + 1] : "volume");
}
