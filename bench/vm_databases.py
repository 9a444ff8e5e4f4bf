# SPDX-License-Identifier: GPL-2.0-or-later
"""PostgreSQL (pgbench) and SQLite on the kernel module beside tmpfs, ext4, xfs and btrfs, in a virtual machine.

pgbench: its standard transactions, on a cluster that is made once and copied to each filesystem; with full_page_writes on,
as PostgreSQL is configured, and off, which is safe where pages are written untorn.  SQLite: a process that commits a row added and
three changed, with each of its journal modes, synchronous=FULL.  Done in the same way as bench/run dbench, which see.

With --throttle 100M the disk is as slow as that.
"""
from vm_common import DISK_FILESYSTEMS, Group, add_options as add_common_options, measure
from vm_machine import programs_disk
from vm_rows import Goal

TITLE = "Databases on the Tux3 kernel module beside tmpfs, ext4, xfs and btrfs"
JOURNALS = ("delete", "truncate", "persist", "wal")
CLIENTS = 4


def add_options(parser):
    add_common_options(parser)
    parser.add_argument("--throttle", metavar="BYTES", help="limit the disk to so many bytes per second (100M)")


def pgbench(full_page_writes, scale, seconds):
    return Group(f"pgbench, full_page_writes={full_page_writes}", "pgbench", limit_s=900 + 5 * seconds, image="/dev/vdb", scale=scale,
                 clients=CLIENTS, seconds=seconds, full_page_writes=full_page_writes)


def prepare(bench, groups):
    if any(group.measurement == "pgbench" for group in groups):
        bench.more_disks.append(programs_disk("postgresql", bench.folder / "postgresql"))
    return {}


def run(args):
    scale, pg_seconds, seconds = (1, 3, 2) if args.quick else (10, 60, 20)
    groups = [pgbench(setting, scale, pg_seconds) for setting in ("on", "off")]
    groups += [Group(f"SQLite, journal_mode={journal}", "sqlite", journal=journal, seconds=seconds) for journal in JOURNALS]
    goals = [Goal(group.title, "", peer, 1, True) for group in groups for peer in DISK_FILESYSTEMS]
    config = {"pgbench": f"-s {scale} -c {CLIENTS} -j 1 -T {pg_seconds} -n, by a socket; fsync=on, synchronous_commit=on, data checksums, "
                         "else as PostgreSQL comes; the cluster is made in memory and copied, then CHECKPOINT",
              "SQLite": f"{seconds} s, one process, synchronous=FULL; 20,000 rows; each transaction adds a row of 400 bytes and changes 3",
              "disk is limited to": args.throttle or "nothing"}
    return measure(args, groups, config, goals, prepare, TITLE)
