/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What families.c, families_fsync.c and families_bad.c share. */
#ifndef SIM_FAMILIES_H
#define SIM_FAMILIES_H

#include "sim.h"

#define MIB		(1ULL << 20)
#define GIB		(1ULL << 30)
#define NEVER		1000000u

/* One life of one run. */
struct life {
	struct sim_run *run;
	const struct sim_params *params;
	struct rng *rng;
	u32 ops;
};

/* Returns what the volume said; an error if the run has failed. */
s64 make_op(struct life *life, const struct sim_op *op);
/* The seed of what is written, and the mode of what is made, are random. */
s64 op_on(struct life *life, enum sim_op_kind kind, const char *path, u64 offset, u64 len);
void sync_all(struct life *life);
void set_attr(struct life *life, const char *path);	/* its mode and owner */
void make_dirs(struct life *life, u32 count);		/* d0, d1 and so on */

/* ---- families_fsync.c ---- */

void ahead_params(struct sim_params *params, struct rng *rng);
void ahead_live(struct life *life);
void dirs_params(struct sim_params *params, struct rng *rng);
void dirs_live(struct life *life);
void saves_live(struct life *life);
void beside_params(struct sim_params *params, struct rng *rng);
void beside_live(struct life *life);
void trees_live(struct life *life);
void pages_params(struct sim_params *params, struct rng *rng);
void pages_live(struct life *life);
void early_params(struct sim_params *params, struct rng *rng);
void early_live(struct life *life);

/* ---- families_bad.c ---- */

void bad_params(struct sim_params *params, struct rng *rng);
void bad_live(struct life *life);

#endif
