/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The commands of the program tux3, and what they share. */
#ifndef TUX3_TOOLS_COMMANDS_H
#define TUX3_TOOLS_COMMANDS_H

#include "common.h"

/* argv[0] is the command.  All return an exit code. */
int command_show(int argc, char **argv);
int command_stat(int argc, char **argv);
int command_graph(int argc, char **argv);
int command_image(int argc, char **argv);
int command_quota(int argc, char **argv);
int command_path(int argc, char **argv);
int command_ls_inodes(int argc, char **argv);
int command_scrub(int argc, char **argv);
int command_defrag(int argc, char **argv);
int command_tune(int argc, char **argv);
int command_undo(int argc, char **argv);

extern const char show_help[], stat_help[], graph_help[], image_help[], quota_help[], path_help[], ls_inodes_help[], scrub_help[],
	defrag_help[], tune_help[], undo_help[];

/*
 * Output that goes on for long: printers of core/show/show.h write to out, which is emptied to stdout
 * between elements.  In JSON, all elements together are one list.
 */
struct stream {
	struct show_buffer out;
	bool listed;		/* JSON: the list is open */
};

bool stream_init(struct stream *stream, bool json);
struct show_buffer *stream_begin(struct stream *stream);	/* one element: a line of text, or an object */
void stream_end(struct stream *stream);
/* Empty the buffer; within an element too. */
void stream_flush(struct stream *stream);
int stream_exit(struct stream *stream);		/* an exit code: was all of it written? */

/*
 * Open for looking: if the log cannot be replayed, the state before it.  Messages are printed.  0, or an exit
 * code; then tool->dev may still be there.  Close with tool_close().
 */
int command_open(const char *path, struct tool_volume *tool);

/* Inode, or items of the volume itself under that number. */
bool command_inode_is_there(struct volume *vol, u64 ino);

/*
 * The numbers of a mounted volume, as the module or the daemon tells them: lines "name value unit what".  -1: it was said why.  size:
 * TUX3_STATISTICS_MAX.
 */
ssize_t command_ask_mounted(const char *path, dev_t dev, char *text, size_t size);

#endif
