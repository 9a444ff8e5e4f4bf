/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tux3 graph: the structure of a volume as a picture, in the language of Graphviz.
 *
 * Anchors lead to the root and to the log; inner nodes to their children; extents to blocks.  Meant for
 * small volumes: of large ones only the first items are drawn.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "commands.h"
#include "core/freemap.h"
#include "core/tree_internal.h"

const char graph_help[] =
"tux3 graph IMAGE [--svg] [-o FILE] [--limit NUMBER]\n"
"\n"
"Draws the structure of a volume that is not mounted: anchors, tree, items, extents, log, groups.\n"
"\n"
"  --svg                    an SVG picture, made by dot (Debian package graphviz), not its source\n"
"  -o, --output FILE        write there, not to stdout\n"
"  -l, --limit NUMBER       draw at most so many items (400)\n"
"\n"
"Examples:\n"
"  tux3 graph disk.img --svg -o disk.svg\n"
"  tux3 graph disk.img | dot -Tpng >disk.png\n"
"\n"
"Exit code 0: drawn; 1: could not; 16: wrong use.\n";

#define ITEM_TEXT	100u	/* of an item, so much is drawn */
#define RECORDS_DRAWN	12u	/* of each commit */
#define GROUPS_DRAWN	64u

struct graph {
	FILE *to;
	struct volume *vol;
	u64 limit, items;	/* drawn so far */
	u64 left_out;
	u64 commits;
};

/* Text for an HTML-like label. */
static void put_text(struct graph *graph, const char *text, size_t max)
{
	size_t i;

	for (i = 0; text[i] && i < max; i++) {
		switch (text[i]) {
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
			fputc(text[i] < 0x20 || text[i] > 0x7e ? '?' : text[i], graph->to);
		}
	}
	if (text[i])
		fputs("...", graph->to);
}

static void box_begin(struct graph *graph, const char *color)
{
	fprintf(graph->to, "[label=<<table border=\"0\" cellborder=\"1\" cellspacing=\"0\" cellpadding=\"3\">"
		"<tr><td port=\"top\" bgcolor=\"%s\">", color);
}

static void box_end(struct graph *graph)
{
	fprintf(graph->to, "</table>>];\n");
}

/* ---- anchors ---- */

static void graph_anchors(struct graph *graph)
{
	struct volume *vol = graph->vol;
	struct disk_anchor anchor;
	unsigned int n;
	char why[200];

	for (n = 0; n < TUX3_ANCHOR_SLOTS; n++) {
		bool current = n == vol->anchor_slot;

		fprintf(graph->to, "anchor%u ", n);
		box_begin(graph, current ? "#f4c542" : "#eeeeee");
		fprintf(graph->to, "<b>anchor slot %u</b></td></tr>", n);
		if (volume_read_anchor_slot(vol->dev, n, &anchor, why, sizeof(why))) {
			fprintf(graph->to, "<tr><td>");
			put_text(graph, why, ITEM_TEXT);
			fprintf(graph->to, "</td></tr>");
		} else {
			fprintf(graph->to, "<tr><td>generation %llu</td></tr><tr><td>delta %llu</td></tr>"
				"<tr><td port=\"root\">root at block %llu</td></tr><tr><td port=\"log\">log from block %llu</td></tr>",
				(unsigned long long)le64_to_cpu(anchor.generation),
				(unsigned long long)le64_to_cpu(anchor.delta),
				(unsigned long long)le64_to_cpu(anchor.root_addr),
				(unsigned long long)le64_to_cpu(anchor.log_addr));
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
	u64 addr;
	u32 count;

	if (len < sizeof(struct disk_extent))
		return;
	addr = get_unaligned_le64(data);
	count = get_unaligned_le32(data + offsetof(struct disk_extent, len));
	fprintf(graph->to, "data%llu [shape=box, style=filled, fillcolor=\"#d8e8d0\", label=\"blocks %llu .. %llu\"];\n",
		(unsigned long long)addr, (unsigned long long)addr, (unsigned long long)addr + count - 1);
	fprintf(graph->to, "node%llu:i%u -> data%llu:w;\n", (unsigned long long)visit->addr, i,
		(unsigned long long)addr);
}

/* How many entries of a node are drawn; the rest is counted. */
static u32 graph_take(struct graph *graph, u32 count)
{
	u32 take = min_t(u64, count, graph->limit - min(graph->items, graph->limit));

	graph->items += take;
	graph->left_out += count - take;
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
		fprintf(graph->to, "<tr><td port=\"i%u\" align=\"left\">", i);
		put_text(graph, text, ITEM_TEXT);
		fprintf(graph->to, "</td></tr>");
	}
	if (take < count)
		fprintf(graph->to, "<tr><td>%u more items</td></tr>", count - take);
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
	u32 count = node_count(node), i;
	char text[100];
	struct show_buffer out;

	for (i = 0; i < count; i++) {
		struct node_key packed = inner_key(node, i);
		struct tree_key key = node_key_unpack(&packed);

		show_init(&out, text, sizeof(text), false);
		show_key(&out, &key);
		fprintf(graph->to, "<tr><td port=\"i%u\" align=\"left\">from %s</td></tr>", i, text);
	}
	box_end(graph);
	for (i = 0; i < count; i++)
		fprintf(graph->to, "node%llu:i%u -> node%llu:top;\n", (unsigned long long)visit->addr, i,
			(unsigned long long)inner_link(node, i).addr);
}

static int graph_visit(void *ctx, const struct tree_visit *visit)
{
	struct graph *graph = ctx;

	fprintf(graph->to, "node%llu ", (unsigned long long)visit->addr);
	box_begin(graph, !visit->data ? "#f09090" : visit->level ? "#a8c8f0" : "#c8e0f8");
	if (!visit->data) {
		fprintf(graph->to, "<b>block %llu cannot be used</b></td></tr><tr><td>",
			(unsigned long long)visit->addr);
		put_text(graph, visit->why, ITEM_TEXT);
		fprintf(graph->to, "</td></tr>");
		box_end(graph);
		return 0;
	}
	fprintf(graph->to, "<b>%s</b> ", visit->level ? "inner node" : "leaf");
	if (!node_unplaced(visit->addr))
		fprintf(graph->to, "block %llu, ", (unsigned long long)visit->addr);
	fprintf(graph->to, "birth %llu, level %u%s</td></tr>", (unsigned long long)visit->birth, visit->level,
		visit->dirty ? ", only in memory" : "");
	if (visit->level)
		graph_inner(graph, visit);
	else
		graph_leaf(graph, visit);
	/* Below a node of which nothing more is drawn, leaves are not either. */
	return visit->level == 1 && graph->items >= graph->limit ? 1 : 0;
}

/* ---- the log ---- */

static int graph_commit(void *ctx, const struct log_commit *commit)
{
	struct graph *graph = ctx;
	u32 at = 0, drawn = 0, bytes = le32_to_cpu(commit->commit->bytes), records = le32_to_cpu(commit->commit->records);
	const struct disk_record *record;
	struct show_buffer out;
	char text[1024];

	fprintf(graph->to, "commit%llu ", (unsigned long long)graph->commits);
	box_begin(graph, commit->torn ? "#f09090" : "#e8d0f0");
	fprintf(graph->to, "<b>commit of delta %llu</b>, %u log blocks from %llu%s</td></tr>",
		(unsigned long long)le64_to_cpu(commit->commit->delta), commit->block_count,
		(unsigned long long)commit->blocks[0], commit->torn ? ", torn" : "");
	while (drawn < RECORDS_DRAWN && log_next_record(commit->records, bytes, &at, &record) > 0) {
		show_init(&out, text, sizeof(text), false);
		show_record(&out, record);
		fprintf(graph->to, "<tr><td align=\"left\">");
		put_text(graph, text, ITEM_TEXT);
		fprintf(graph->to, "</td></tr>");
		drawn++;
	}
	if (drawn < records)
		fprintf(graph->to, "<tr><td>%u more records</td></tr>", records - drawn);
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
	box_begin(graph, "#eeeeee");
	fprintf(graph->to, "<b>%llu groups of %u blocks</b></td></tr>", (unsigned long long)vol->group_count,
		vol->group_blocks);
	for (group = 0; bits && group < vol->group_count && drawn < GROUPS_DRAWN; group++) {
		u32 length = group_length(vol, group), used = 0, i;

		if (balloc_copy_group(vol, group, bits)) {
			fprintf(graph->to, "<tr><td>group %llu: its free map cannot be used</td></tr>",
				(unsigned long long)group);
			drawn++;
			continue;
		}
		for (i = 0; i < length; i++)
			used += !!(bits[i / 8] & 1 << i % 8);
		if (used == group_fixed_blocks(vol, group, 0, length))
			continue;
		fprintf(graph->to, "<tr><td>group %llu: %u of %u blocks in use</td></tr>",
			(unsigned long long)group, used, length);
		drawn++;
	}
	fprintf(graph->to, "<tr><td>groups that are not listed are empty</td></tr>");
	box_end(graph);
	free(bits);
}

/* ---- the command ---- */

static int graph_draw(struct graph *graph)
{
	int err;

	fprintf(graph->to, "digraph tux3 {\nrankdir=LR;\nnode [shape=plaintext, fontname=\"sans-serif\", fontsize=10];\n"
		"edge [fontname=\"sans-serif\", fontsize=9];\n");
	graph_anchors(graph);
	err = tree_walk(graph->vol, graph_visit, graph);
	if (!err)
		log_walk(graph->vol, graph_commit, graph);
	graph_groups(graph);
	if (graph->left_out)
		fprintf(graph->to, "label=\"%llu items are not drawn (--limit)\";\n",
			(unsigned long long)graph->left_out);
	fprintf(graph->to, "}\n");
	if (err)
		tool_error("The tree cannot be read to its end: %s.", strerror(-err));
	return err ? EXIT_FAILED : EXIT_CLEAN;
}

/* To a file or stdout, through dot if a picture is wanted. */
static int graph_write(struct graph *graph, const char *output, bool svg)
{
	FILE *file = output ? freopen(output, "w", stdout) : stdout;
	int ret, status;

	if (!file) {
		tool_error("%s cannot be written: %s.", output, strerror(errno));
		return EXIT_FAILED;
	}
	if (svg && system("command -v dot >/dev/null 2>&1")) {
		tool_error("The program dot is not there: install graphviz, or leave out --svg.");
		return EXIT_FAILED;
	}
	graph->to = svg ? popen("exec dot -Tsvg", "w") : stdout;
	if (!graph->to) {
		tool_error("dot cannot be started: %s.", strerror(errno));
		return EXIT_FAILED;
	}
	ret = graph_draw(graph);
	status = svg ? pclose(graph->to) : fflush(stdout);
	if (status || ferror(stdout)) {
		tool_error("The picture could not be written.");
		ret = EXIT_FAILED;
	}
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
		if (option == 'h') {
			fputs(graph_help, stdout);
			return EXIT_CLEAN;
		}
		if (option == 's')
			svg = true;
		else if (option == 'o')
			output = optarg;
		else if (option != 'l' || !parse_number(optarg, &graph.limit))
			return tool_usage("See tux3 help graph.");
	}
	if (argc - optind != 1)
		return tool_usage("Which image?");
	ret = command_open(argv[optind], &tool);
	if (!ret) {
		graph.vol = tool.vol;
		ret = graph_write(&graph, output, svg);
	}
	tool_close(&tool);
	return ret;
}
