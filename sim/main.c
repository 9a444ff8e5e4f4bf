/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tux3-sim: the command line of the crash simulator. */
#include <getopt.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "sim.h"
#include "core/options.h"
#include "user/env/streams.h"

static const char help[] =
"tux3-sim: runs a Tux3 volume on a modelled disk beside an oracle, cuts the power after every write,\n"
"and looks at what is left.\n"
"\n"
"What to run (one of):\n"
"  --seeds N          N random workloads (100)\n"
"  --family NAME      workloads of a family, or \"all\": each in turn; --help lists them\n"
"  --exhaustive L     every sequence of L (1 or 2) operations, each with every sync\n"
"  --io-errors        an error at the nth read, write, flush, for every n of short workloads\n"
"  --alloc-errors     no memory at the nth allocation, for every n of short workloads\n"
"  --threads N        N threads and a real back end, abandoned at a random moment\n"
"  --canary[=KIND]    a defect on purpose, drop-flush if none is named: must be caught (exit status 0 if it is)\n"
"  --less N           with --canary=cheap-FORMULA: what costs are counted with is so much less than is right (1)\n"
"How:\n"
"  --seed S           the first seed (1); alone: only that one\n"
"  --ops K            operations in each workload (drawn from the seed)\n"
"  --cuts-per-run N   at most about so many cuts of each workload (every write)\n"
"  --images N         images for each cut: all writes, a subset, one torn, a subset ... (4; families 2)\n"
"  --second N         one of N images is used and cut again, 0: none (12; families fewer)\n"
"  --fsync HOW        auto, full, or ahead: all fsyncs (drawn from the seed)\n"
"  --jobs N           processes (one for each CPU)\n"
"  --minutes N        stop after so long\n"
"  --cut K, --image I, --nth N   only this cut, image, fault: what a failure prints to replay it\n"
"  --verbose          every operation, and every message of the volume\n"
"  --trace            every write of a workload\n"
"\n"
"Examples:\n"
"  tux3-sim --seeds 10000\n"
"  tux3-sim --seed 4711 --cut 12 --image 2 --verbose\n"
"  tux3-sim --family all --seeds 3\n"
"  tux3-sim --family full --seed 7\n"
"  tux3-sim --exhaustive 2\n"
"  tux3-sim --io-errors --seeds 20\n"
"  tux3-sim --canary\n"
"\n"
"Ends with a line \"N passed, N failed\"; exit status 0 if none failed, 1 if one did, 2 for wrong usage.\n";

enum option_number { OPT_SEEDS = 256, OPT_SEED, OPT_OPS, OPT_CUTS, OPT_IMAGES, OPT_SECOND, OPT_JOBS, OPT_MINUTES,
		     OPT_CUT, OPT_IMAGE, OPT_NTH, OPT_EXHAUSTIVE, OPT_IO_ERRORS, OPT_ALLOC_ERRORS, OPT_THREADS,
		     OPT_CANARY, OPT_LESS, OPT_FAMILY, OPT_FSYNC, OPT_VERBOSE, OPT_TRACE, OPT_HELP, OPT_VERSION };

static const struct option options[] = {
	{ "seeds", required_argument, NULL, OPT_SEEDS },
	{ "seed", required_argument, NULL, OPT_SEED },
	{ "ops", required_argument, NULL, OPT_OPS },
	{ "cuts-per-run", required_argument, NULL, OPT_CUTS },
	{ "images", required_argument, NULL, OPT_IMAGES },
	{ "second", required_argument, NULL, OPT_SECOND },
	{ "fsync", required_argument, NULL, OPT_FSYNC },
	{ "jobs", required_argument, NULL, OPT_JOBS },
	{ "minutes", required_argument, NULL, OPT_MINUTES },
	{ "cut", required_argument, NULL, OPT_CUT },
	{ "image", required_argument, NULL, OPT_IMAGE },
	{ "nth", required_argument, NULL, OPT_NTH },
	{ "family", required_argument, NULL, OPT_FAMILY },
	{ "exhaustive", required_argument, NULL, OPT_EXHAUSTIVE },
	{ "io-errors", no_argument, NULL, OPT_IO_ERRORS },
	{ "alloc-errors", no_argument, NULL, OPT_ALLOC_ERRORS },
	{ "threads", required_argument, NULL, OPT_THREADS },
	{ "canary", optional_argument, NULL, OPT_CANARY },
	{ "less", required_argument, NULL, OPT_LESS },
	{ "verbose", no_argument, NULL, OPT_VERBOSE },
	{ "trace", no_argument, NULL, OPT_TRACE },
	{ "help", no_argument, NULL, OPT_HELP },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ NULL, 0, NULL, 0 },
};

static u64 number(const char *text)
{
	char *end;
	u64 value = strtoull(text, &end, 0);

	if (!*text || *end || *text == '-') {
		fprintf(stderr, "tux3-sim: \"%s\" is not a number; --help tells what may be given\n", text);
		exit(2);
	}
	return value;
}

static enum sim_canary canary_kind(const char *text)
{
	u32 i;

	if (!text)
		return CANARY_DROP_FLUSH;
	for (i = CANARY_NONE + 1; i < CANARIES; i++)
		if (i != CANARY_CHEAP_COSTS && !strcmp(text, canary_names[i]))
			return i;
	fprintf(stderr, "tux3-sim: there is no canary \"%s\"; --help lists them\n", text);
	exit(2);
}

static u32 family_number(const char *name)
{
	u32 family = family_find(name);

	if (family == family_count() && strcmp(name, "all")) {
		fprintf(stderr, "tux3-sim: there is no family \"%s\"; --help lists them\n", name);
		exit(2);
	}
	return family;
}

static u32 fsync_kind(const char *text)
{
	u32 fsync;

	if (option_parse_value(OPTION_FSYNC, text, &fsync))
		return fsync;
	fprintf(stderr, "tux3-sim: \"%s\" is no way to fsync: auto, full, ahead\n", text);
	exit(2);
}

static void print_help(void)
{
	fputs(help, stdout);
	printf("\nFamilies:\n");
	families_print();
	printf("\nCanaries:\n");
#define X(NAME, name, what) printf("  %-14s %s\n", name, what);
	SIM_CANARIES(X)
#undef X
#define X(NAME, name, what) printf("  cheap-%-14s too little: %s\n", name, what);
	SPACE_FORMULAS(X)
#undef X
}

static void take_what(struct sim_config *config, int opt)
{
	switch (opt) {
	case OPT_FAMILY:
		config->mode = MODE_FAMILY;
		config->family = family_number(optarg);
		break;
	case OPT_EXHAUSTIVE:
		config->mode = MODE_EXHAUSTIVE;
		config->length = number(optarg);
		if (config->length < 1 || config->length > 2) {
			fprintf(stderr, "tux3-sim: sequences are of 1 or 2 operations\n");
			exit(2);
		}
		break;
	case OPT_IO_ERRORS:
		config->mode = MODE_IO_ERRORS;
		break;
	case OPT_ALLOC_ERRORS:
		config->mode = MODE_ALLOC_ERRORS;
		break;
	case OPT_THREADS:
		config->mode = MODE_THREADS;
		config->threads = clamp_t(u64, number(optarg), 1, 64);
		break;
	case OPT_LESS:
		config->cheap_by = number(optarg);
		break;
	case OPT_CANARY:
		config->canary = canary_kind(optarg);
		break;
	}
}

static void take_option(struct sim_config *config, int opt)
{
	switch (opt) {
	case OPT_SEEDS:
		config->seeds = number(optarg);
		break;
	case OPT_SEED:
		config->seed = number(optarg);
		config->seeds = config->seeds ? config->seeds : 1;
		break;
	case OPT_OPS:
		config->ops = number(optarg);
		break;
	case OPT_CUTS:
		config->cuts = number(optarg);
		break;
	case OPT_IMAGES:
		config->images = clamp_t(u64, number(optarg), 1, 64);
		break;
	case OPT_SECOND:
		config->second_rate = number(optarg);
		break;
	case OPT_FSYNC:
		config->fsync = fsync_kind(optarg);
		break;
	case OPT_JOBS:
		config->jobs = clamp_t(u64, number(optarg), 1, 64);
		break;
	case OPT_MINUTES:
		config->minutes = number(optarg);
		break;
	case OPT_CUT:
		config->only_cut = number(optarg);
		break;
	case OPT_IMAGE:
		config->only_image = number(optarg);
		break;
	case OPT_NTH:
		config->only_nth = number(optarg);
		break;
	case OPT_VERBOSE:
		config->verbose = true;
		break;
	case OPT_TRACE:
		config->show_trace = true;
		break;
	case OPT_HELP:
		print_help();
		exit(finish_output("tux3-sim", 0, 1));
	case OPT_VERSION:
		puts("tux3-sim " TUX3_VERSION);
		exit(finish_output("tux3-sim", 0, 1));
	case '?':
		fprintf(stderr, "tux3-sim: --help tells what may be given\n");
		exit(2);
	default:
		take_what(config, opt);
	}
}

static int run_mode(const struct sim_config *config)
{
	u64 seed = config->seed, seeds = config->seeds;

	switch (config->mode) {
	case MODE_EXHAUSTIVE:
		return jobs_run(config, workload_unit, seeds ? seed : 0,
				seeds ? seeds : exhaustive_count(config->length));
	case MODE_FAMILY:
		return jobs_run(config, workload_unit, seed,
				(seeds ? seeds : 1) * (config->family < family_count() ? 1 : family_count()));
	case MODE_IO_ERRORS:
		return jobs_run(config, io_errors_unit, seed, seeds ? seeds : 10);
	case MODE_ALLOC_ERRORS:
		return jobs_run(config, alloc_errors_unit, seed, seeds ? seeds : 4);
	case MODE_THREADS:
		return jobs_run(config, threads_unit, seed, seeds ? seeds : 20);
	default:
		return jobs_run(config, workload_unit, seed, seeds ? seeds : 100);
	}
}

int main(int argc, char **argv)
{
	struct sim_config config = {
		.seed = 1, .cheap_by = 1, .second_rate = SIM_ANY, .only_cut = -1, .only_image = -1, .only_nth = -1,
		.jobs = clamp_t(long, sysconf(_SC_NPROCESSORS_ONLN), 1, 64),
	};
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1)
		take_option(&config, opt);
	if (optind < argc) {
		fprintf(stderr, "tux3-sim: \"%s\" is not an option; --help tells what may be given\n", argv[optind]);
		return 2;
	}
	/* Volumes come and go by the thousand: memory given back would be faulted in again, page by page. */
	mallopt(M_TRIM_THRESHOLD, 512 << 20);
	mallopt(M_MMAP_THRESHOLD, 512 << 20);
	sim_log_init(&config);
	return run_mode(&config);
}
