# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel module beside tmpfs, ext4, xfs and btrfs, in a virtual machine: dbench, untar, fs_mark; CPU time and I/O.

vm/run boots the stock kernel for it; root is not needed.  The filesystems are measured in turn on the same disk image,
in several interleaved rounds; printed are medians, half the range, and the ratios of tux3 to the others (the median of
the ratios within rounds).  CPU time is that of the front end (the programs, with their system calls), of the back end
(all kernel threads, and the caller of sync) and of the machine as a whole, for all filesystems in the same way.
Counts (bios, flushes, bytes written) do not depend on the machine.
"""
import subprocess
from pathlib import Path

import vm_common
from common import ROOT, run as execute
from vm_common import DISK_FILESYSTEMS, Group
from vm_rows import Goal

SYNC_S = 4
TITLE = "Tux3 kernel module beside tmpfs, ext4, xfs and btrfs"


def dbench_title(load, clients):
    what = "no Flush" if load == "no-flush" else "unmodified"
    return f"dbench, {what}, {clients} client{'s' if clients > 1 else ''}"


def dbench_group(load, clients, seconds):
    return Group(dbench_title(load, clients), "dbench", 120 + 8 * seconds, load=load, clients=clients, seconds=seconds,
                 sync_s=SYNC_S if load == "no-flush" else 0)


def fs_mark_group(files, size):
    return Group(f"fs_mark, {files:,} {f'files of {size >> 10} KiB' if size else 'empty files'}", "fs_mark", 600,
                 files=files, bytes=size)


def all_groups(args):
    seconds = args.seconds
    files = 400 if args.quick else 20000
    groups = [dbench_group(load, clients, seconds) for clients in (1, 2, 4) for load in ("no-flush", "flush")]
    # The rest of its parameters comes with the tree.
    groups.append(Group("headers tree", "tree", 900, copies=1 if args.quick else 3))
    groups += [fs_mark_group(files, 0), fs_mark_group(files, 16 << 10)]
    if args.quick:
        # Each kind once.
        groups = [groups[0], groups[6], groups[7]]
    return groups


def goals_of():
    headline, unmodified = dbench_title("no-flush", 1), dbench_title("flush", 1)
    return [
        Goal(headline, "", "tmpfs", 1.15, True),
        *(Goal(headline, "", peer, 1.3, True) for peer in DISK_FILESYSTEMS),
        Goal(headline, "Unlink average", "tmpfs", 0.6, False),
        Goal(headline, "max latency", "ext4", 1, False),
        *(Goal(unmodified, "", peer, 1.15, True) for peer in DISK_FILESYSTEMS),
    ]


# ---- input ----

def headers_tree():
    """A tree of real files, and what to say of it."""
    found = subprocess.run([ROOT / "scripts/headers-tree"], stdout=subprocess.PIPE, text=True, check=False)
    if found.returncode == 0:
        return Path(found.stdout.strip()), ""
    return Path("/usr/include"), "; instead of the kernel headers package, which could not be fetched"


def prepare_tree(group, folder, quick):
    """The archive; a description of it."""
    tree, note = headers_tree()
    if quick and (tree / "include/uapi").is_dir():
        tree = tree / "include/uapi"
    tar = folder / "tree.tar"
    execute(["tar", "-cf", tar, "-C", tree.parent, tree.name])
    names = execute(["tar", "-tf", tar]).splitlines()
    group.params.update(tar=tar.name, files=len(names))
    folders = sum(name.endswith("/") for name in names)
    return tar, (f"{tree}: {len(names) - folders:,} files, {folders:,} folders, {tar.stat().st_size >> 20} MiB as "
                 f"tar{note}; unpacked from memory")


# ---- ----

def add_options(parser):
    vm_common.add_options(parser)
    parser.add_argument("--seconds", type=int, help="for each dbench (30; 3 with --quick)")


def run(args):
    args.seconds = args.seconds or (3 if args.quick else 30)
    if args.seconds < 3:
        raise RuntimeError("dbench needs at least 3 seconds")
    config = {
        "dbench": f"{args.seconds} s; \"no Flush\": sync(2) every {SYNC_S} s, counted from its start; unmodified: no "
                  "sync beside (its Flush is fsync).  Its results are without its warm-up, which lasts a fifth of that "
                  "time.  CPU time and counts: from second 1 to the last but one, per line of the load done",
        "other rows": "timed without and with a sync(2) at the end; CPU time and counts from the start to after that "
                      "sync, per file made or removed",
    }

    def prepare(bench, groups):
        described = {}
        for group in groups:
            if group.measurement == "tree":
                tar, described["tree"] = prepare_tree(group, bench.folder, args.quick)
                bench.copy_in.append(tar)
            elif group.measurement == "fs_mark":
                described["fs_mark"] = "-n FILES -s BYTES -S 0 (no sync) -t 1 -k, one directory; removed with rm -r"
        return described

    return vm_common.measure(args, all_groups(args), config, goals_of(), prepare, TITLE)
