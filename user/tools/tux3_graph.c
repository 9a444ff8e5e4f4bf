/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tux3 graph: the structure of a volume as a picture, in the language of Graphviz.
 *
 * Anchors lead to the root and to the log; inner nodes to their children; extents to blocks.  Meant for
 * small volumes: of large ones only the first entries are drawn, and it says so.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "commands.h"
#include "core/blocks/freemap.h"
#include "core/tree/tree_internal.h"
#include "core/format/anchor.h"
#include "core/log/apply.h"
#include "core/log/replay.h"

const char graph_help[] =
"tux3 graph IMAGE [--svg] [-o FILE] [--limit NUMBER]\n"
"\n"
"Draws the structure of a volume that is not mounted: anchors, tree, items, extents, log, groups.\n"
"\n"
"  --svg                    an SVG picture, made by dot (Debian package graphviz), not its source\n"
"  -o, --output FILE        write there, not to stdout\n"
"  -l, --limit NUMBER       draw at most so many entries of the tree (400)\n"
"\n"
"Examples:\n"
"  tux3 graph disk.img --svg -o disk.svg\n"
"  tux3 graph disk.img | dot -Tpng >disk.png\n"
"\n"
"Exit code 0: drawn, all or the first part; 1: could not; 16: wrong use.\n";

#define ITEM_TEXT	100u	/* of an item, so much is drawn */
#define BRANCHES_DRAWN	24u	/* of each inner node */
#define RECORDS_DRAWN	12u	/* of each commit */
#define COMMITS_DRAWN	100u
#define GROUPS_DRAWN	64u

/*
 * Whoever looks at the picture may not have the font that dot measured.  So it is one in which all characters are
 * equally wide, and each box is told how wide it has to be.
 */
#define FONT		"Courier"
#define FONT_SIZE	10
#define LETTER_WIDTH	6.1	/* of that size; 0.60 to 0.61 of it in all such fonts */
#define PADDING		4

struct graph {
	FILE *to;
	struct volume *vol;
	u64 limit, entries;	/* of nodes, drawn so far */
	bool cut;
	u64 commits;
	/* The inner nodes between the root and where we are, and the next of their branches. */
	struct {
		u64 addr;
		u32 next, drawn;
	} above[TUX3_MAX_LEVEL + 1];
};

/* ---- boxes ---- */

static void box_begin(struct graph *graph)
{
	fprintf(graph->to, "[label=<<table border=\"0\" cellborder=\"1\" cellspacing=\"0\" cellpadding=\"%u\">", PADDING);
}

static void box_end(struct graph *graph)
{
	fprintf(graph->to, "</table>>];\n");
}

static void put_char(struct graph *graph, char c)
{
	switch (c) {
	case '<':
		fputs("&lt;", graph->to);
		break;
	case '>':
		fputs("&gt;", graph->to);
		break;
	case '&':
		fputs("&amp;", graph->to);
		break;
	case '"':
		fputs("&quot;", graph->to);
		break;
	default:
		/* A name may end in the middle of a character here: only ASCII is safe. */
		fputc(c < 0x20 || c > 0x7e ? '?' : c, graph->to);
	}
}

/* One line of a box.  attributes: those of its <td>. */
static __printf(3, 4) void row(struct graph *graph, const char *attributes, const char *format, ...)
{
	char text[1100];
	va_list args;
	size_t i, len;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	len = strlen(text);
	if (len > ITEM_TEXT) {
		strcpy(text + ITEM_TEXT, "...");
		len = ITEM_TEXT + 3;
	}
	fprintf(graph->to, "<tr><td align=\"left\" width=\"%.0f\" %s>", len * LETTER_WIDTH + 2 * PADDING + 2, attributes);
	for (i = 0; i < len; i++)
		put_char(graph, text[i]);
	fprintf(graph->to, "</td></tr>");
}

/* The first line, in colour. */
#define title(graph, color, ...) row(graph, "port=\"top\" bgcolor=\"" color "\"", __VA_ARGS__)

static __printf(3, 4) void port_row(struct graph *graph, u32 port, const char *format, ...)
{
	char attributes[32], text[1100];
	va_list args;

	snprintf(attributes, sizeof(attributes), "port=\"i%u\"", port);
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	row(graph, attributes, "%s", text);
}

/* ---- anchors ---- */

static void graph_anchors(struct graph *graph)
{
	struct volume *vol = graph->vol;
	struct disk_anchor anchor;
	unsigned int n;
	char why[200];

	for (n = 0; n < TUX3_ANCHOR_SLOTS; n++) {
		bool newest = n == vol->anchor_slot;

		fprintf(graph->to, "anchor%u ", n);
		box_begin(graph);
		if (newest)
			title(graph, "#f4c542", "anchor slot %u", n);
		else
			title(graph, "#eeeeee", "anchor slot %u", n);
		if (volume_read_anchor_slot(vol->dev, n, &anchor, why, sizeof(why))) {
			row(graph, "", "%s", why);
		} else {
			row(graph, "", "generation %llu", (unsigned long long)le64_to_cpu(anchor.generation));
			row(graph, "", "delta %llu", (unsigned long long)le64_to_cpu(anchor.delta));
			row(graph, "port=\"root\"", "root at block %llu", (unsigned long long)le64_to_cpu(anchor.root_addr));
			row(graph, "port=\"log\"", "log from block %llu", (unsigned long long)le64_to_cpu(anchor.log_addr));
		}
		box_end(graph);
	}
	fprintf(graph->to, "anchor%u:root -> node%llu:top%s;\n", vol->anchor_slot,
		(unsigned long long)vol->tree.root_addr,
		vol->tree.root_addr == le64_to_cpu(vol->anchor.root_addr) ? "" :
		" [style=dashed, label=\"with the log applied\"]");
}

/* ---- the tree ---- */

static void graph_extent(struct graph *graph, const struct tree_visit *visit, u32 i, const u8 *data, u32 len)
{
	char text[64];
	u64 addr;
	u32 count;

	if (len < sizeof(struct disk_extent))
		return;
	addr = get_unaligned_le64(data);
	count = get_unaligned_le32(data + offsetof(struct disk_extent, len));
	snprintf(text, sizeof(text), "blocks %llu .. %llu", (unsigned long long)addr, (unsigned long long)addr + count - 1);
	fprintf(graph->to, "data%llu [shape=box, style=filled, fillcolor=\"#d8e8d0\", width=%.2f, label=\"%s\"];\n",
		(unsigned long long)addr, (strlen(text) * LETTER_WIDTH + 4 * PADDING) / 72, text);
	fprintf(graph->to, "node%llu:i%u -> data%llu:w;\n", (unsigned long long)visit->addr, i,
		(unsigned long long)addr);
}

/* How many entries of a node are drawn; the rest is counted. */
static u32 graph_take(struct graph *graph, u32 count)
{
	u32 take = min_t(u64, count, graph->limit - graph->entries);

	graph->entries += take;
	graph->cut |= take < count;
	return take;
}

static void graph_leaf(struct graph *graph, const struct tree_visit *visit)
{
	const struct disk_node *node = visit->data;
	u32 count = node_count(node), take = graph_take(graph, count), i;
	char text[1024];
	struct show_buffer out;

	for (i = 0; i < take; i++) {
		struct node_key packed = leaf_key(node, i);
		struct tree_key key = node_key_unpack(&packed);

		show_init(&out, text, sizeof(text), false);
		show_item(&out, &key, leaf_data(node, i), leaf_len(node, i));
		port_row(graph, i, "%s", text);
	}
	if (take < count)
		row(graph, "", "%u more items", count - take);
	box_end(graph);
	for (i = 0; i < take; i++) {
		struct node_key packed = leaf_key(node, i);

		if ((packed.high & 0xff) == TUX3_ITEM_EXTENT)
			graph_extent(graph, visit, i, leaf_data(node, i), leaf_len(node, i));
	}
}

static void graph_inner(struct graph *graph, const struct tree_visit *visit)
{
	const struct disk_node *node = visit->data;
	u32 count = node_count(node), take = graph_take(graph, min(count, BRANCHES_DRAWN)), i;
	struct show_buffer out;
	char text[100];

	for (i = 0; i < take; i++) {
		struct node_key packed = inner_key(node, i);
		struct tree_key key = node_key_unpack(&packed);

		show_init(&out, text, sizeof(text), false);
		show_key(&out, &key);
		port_row(graph, i, "from %s", text);
	}
	if (take < count)
		port_row(graph, take, "%u more branches", count - take);
	box_end(graph);
	if (visit->level <= TUX3_MAX_LEVEL) {
		graph->above[visit->level].addr = visit->addr;
		graph->above[visit->level].next = 0;
		graph->above[visit->level].drawn = take;
	}
}

/* From the branch of the parent that leads here.  Only to what is drawn: dot complains of each other one. */
static void graph_branch(struct graph *graph, const struct tree_visit *visit)
{
	u32 level;

	for (level = 1; level <= TUX3_MAX_LEVEL; level++) {
		if (!visit->parent_addr || graph->above[level].addr != visit->parent_addr)
			continue;
		fprintf(graph->to, "node%llu:i%u -> node%llu:top;\n", (unsigned long long)visit->parent_addr,
			min(graph->above[level].next, graph->above[level].drawn), (unsigned long long)visit->addr);
		graph->above[level].next++;
	}
}

static int graph_visit(void *ctx, const struct tree_visit *visit)
{
	struct graph *graph = ctx;
	char block[40] = "";

	if (graph->entries >= graph->limit && visit->parent_addr) {	/* the root is drawn in any case */
		graph->cut = true;
		return -ECANCELED;
	}
	graph_branch(graph, visit);
	fprintf(graph->to, "node%llu ", (unsigned long long)visit->addr);
	box_begin(graph);
	if (!visit->data) {
		title(graph, "#f09090", "block %llu cannot be used", (unsigned long long)visit->addr);
		row(graph, "", "%s", visit->why);
		box_end(graph);
		return 0;
	}
	if (!node_unplaced(visit->addr))
		snprintf(block, sizeof(block), "block %llu, ", (unsigned long long)visit->addr);
	if (visit->level)
		title(graph, "#a8c8f0", "inner node %sbirth %llu, level %u%s", block, (unsigned long long)visit->birth,
		      visit->level, visit->dirty ? ", only in memory" : "");
	else
		title(graph, "#c8e0f8", "leaf %sbirth %llu%s", block, (unsigned long long)visit->birth,
		      visit->dirty ? ", only in memory" : "");
	if (visit->level)
		graph_inner(graph, visit);
	else
		graph_leaf(graph, visit);
	return 0;
}

/* ---- the log ---- */

static int graph_commit(void *ctx, const struct log_commit *commit)
{
	struct graph *graph = ctx;
	u32 at = 0, drawn = 0, bytes = le32_to_cpu(commit->commit->bytes), records = le32_to_cpu(commit->commit->records);
	const struct disk_record *record;
	struct show_buffer out;
	char text[1024];

	if (graph->commits >= COMMITS_DRAWN) {
		graph->commits++;
		return 0;
	}
	fprintf(graph->to, "commit%llu ", (unsigned long long)graph->commits);
	box_begin(graph);
	if (commit->torn)
		title(graph, "#f09090", "commit of delta %llu, torn, %u log blocks from %llu",
		      (unsigned long long)le64_to_cpu(commit->commit->delta), commit->block_count,
		      (unsigned long long)commit->blocks[0]);
	else
		title(graph, "#e8d0f0", "commit of delta %llu, %u log blocks from %llu",
		      (unsigned long long)le64_to_cpu(commit->commit->delta), commit->block_count,
		      (unsigned long long)commit->blocks[0]);
	while (drawn < RECORDS_DRAWN && log_next_record(commit->records, bytes, &at, &record) > 0) {
		show_init(&out, text, sizeof(text), false);
		show_record(&out, record);
		row(graph, "", "%s", text);
		drawn++;
	}
	if (drawn < records)
		row(graph, "", "%u more records", records - drawn);
	box_end(graph);
	if (graph->commits)
		fprintf(graph->to, "commit%llu -> commit%llu;\n", (unsigned long long)graph->commits - 1,
			(unsigned long long)graph->commits);
	else
		fprintf(graph->to, "anchor%u:log -> commit0:top;\n", graph->vol->anchor_slot);
	graph->commits++;
	return 0;
}

/* ---- groups ---- */

static void graph_groups(struct graph *graph)
{
	struct volume *vol = graph->vol;
	u8 *bits = malloc(vol->block_size);
	u64 group, drawn = 0;

	fprintf(graph->to, "groups ");
	box_begin(graph);
	title(graph, "#eeeeee", "%llu groups of %u blocks", (unsigned long long)vol->group_count, vol->group_blocks);
	for (group = 0; bits && group < vol->group_count && drawn < GROUPS_DRAWN; group++) {
		u32 length = group_length(vol, group), used = 0, i;

		if (balloc_copy_group(vol, group, bits)) {
			row(graph, "", "group %llu: its free map cannot be used", (unsigned long long)group);
			drawn++;
			continue;
		}
		for (i = 0; i < length; i++)
			used += !!(bits[i / 8] & 1 << i % 8);
		if (used == group_fixed_blocks(vol, group, 0, length))
			continue;
		row(graph, "", "group %llu: %u of %u blocks in use", (unsigned long long)group, used, length);
		drawn++;
	}
	if (group < vol->group_count)
		row(graph, "", "groups from %llu on are not drawn", (unsigned long long)group);
	row(graph, "", "groups that are not listed%s are empty", group < vol->group_count ? " before" : "");
	box_end(graph);
	free(bits);
}

/* What the limits kept out: in the picture, and on stderr. */
static void graph_tell_cut(struct graph *graph)
{
	char text[200];
	size_t used = 0;

	if (graph->cut)
		used += snprintf(text, sizeof(text), "cut after %llu entries of the tree; what follows is not drawn (--limit)",
				 (unsigned long long)graph->limit);
	if (graph->commits > COMMITS_DRAWN)
		used += snprintf(text + used, sizeof(text) - used, "%s%llu more commits of the log are not drawn",
				 used ? "; " : "", (unsigned long long)graph->commits - COMMITS_DRAWN);
	if (!used)
		return;
	fprintf(graph->to, "label=\"%s\";\n", text);
	tool_error("%s", text);
}

/* ---- the command ---- */

static int graph_draw(struct graph *graph)
{
	int err;

	fprintf(graph->to, "digraph tux3 {\nrankdir=LR;\nnode [shape=plaintext, fontname=\"" FONT "\", fontsize=%u];\n"
		"edge [fontname=\"" FONT "\", fontsize=%u];\n", FONT_SIZE, FONT_SIZE - 1);
	graph_anchors(graph);
	err = tree_walk(graph->vol, graph_visit, graph);
	if (err == -ECANCELED)		/* that is the limit */
		err = 0;
	if (!err)
		log_walk(graph->vol, graph_commit, graph);
	graph_groups(graph);
	graph_tell_cut(graph);
	fprintf(graph->to, "}\n");
	if (err)
		tool_error("The tree cannot be read to its end: %s.", strerror(-err));
	return err ? EXIT_FAILED : EXIT_CLEAN;
}

/* The picture that dot makes of source, into picture. */
static int run_dot(FILE *source, FILE *picture)
{
	int status;
	pid_t pid;

	rewind(source);
	pid = fork();
	if (!pid) {
		if (dup2(fileno(source), 0) == 0 && lseek(0, 0, SEEK_SET) == 0 && dup2(fileno(picture), 1) == 1)
			execlp("dot", "dot", "-Tsvg", NULL);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid) {
		tool_error("dot cannot be started: %s.", strerror(errno));
		return EXIT_FAILED;
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		tool_error("The program dot is not there: install graphviz, or leave out --svg.");
	else if (status)
		tool_error("dot could not draw it; a smaller --limit may help.");
	return status ? EXIT_FAILED : EXIT_CLEAN;
}

static int copy_to(FILE *from, const char *output)
{
	bool is_new = output && access(output, F_OK) != 0;
	FILE *to = output ? fopen(output, "w") : stdout;
	char buffer[65536];
	bool good = to;
	size_t len;

	rewind(from);
	while (good && (len = fread(buffer, 1, sizeof(buffer), from)) > 0)
		good = fwrite(buffer, 1, len, to) == len;
	good = good && !ferror(from) && !fflush(to);
	if (!good)
		tool_error("%s cannot be written: %s.", output ? output : "The picture", strerror(errno));
	if (output && to)
		fclose(to);
	if (!good && to && is_new)
		unlink(output);
	return good ? EXIT_CLEAN : EXIT_FAILED;
}

/* To a file or stdout, through dot if a picture is wanted; not begun before it is complete. */
static int graph_write(struct graph *graph, const char *output, bool svg)
{
	FILE *source = tmpfile(), *picture = svg ? tmpfile() : source;
	int ret = EXIT_FAILED;

	if (source && picture) {
		graph->to = source;
		ret = graph_draw(graph);
		if (fflush(source) || ferror(source)) {
			tool_error("The picture could not be written.");
			ret = EXIT_FAILED;
		} else if (svg && run_dot(source, picture)) {
			ret = EXIT_FAILED;
		} else {
			ret |= copy_to(picture, output);
		}
	} else {
		tool_error("There is no place for a temporary file: %s.", strerror(errno));
	}
	if (picture && picture != source)
		fclose(picture);
	if (source)
		fclose(source);
	return ret;
}

int command_graph(int argc, char **argv)
{
	static const struct option options[] = {
		{ "svg", no_argument, NULL, 's' },
		{ "output", required_argument, NULL, 'o' },
		{ "limit", required_argument, NULL, 'l' },
		{ "help", no_argument, NULL, 'h' },
		{ }
	};
	struct graph graph = { .limit = 400 };
	const char *output = NULL;
	struct tool_volume tool;
	bool svg = false;
	int option, ret;

	while ((option = getopt_long(argc, argv, "so:l:h", options, NULL)) != -1) {
		if (option == 'h')
			return tool_tell(graph_help, EXIT_FAILED);
		if (option == 's')
			svg = true;
		else if (option == 'o')
			output = optarg;
		else if (option != 'l')
			return tool_usage("See tux3 help graph.");
		else if (!parse_number(optarg, &graph.limit))
			return tool_usage("\"%s\" is no number.", optarg);
	}
	if (argc - optind != 1)
		return tool_usage("Which image?");
	ret = output ? tool_check_output(output, argv[optind], false) : 0;
	if (ret)
		return ret;
	ret = command_open(argv[optind], &tool);
	if (!ret) {
		graph.vol = tool.vol;
		ret = graph_write(&graph, output, svg);
	}
	tool_close(&tool);
	return ret;
}
