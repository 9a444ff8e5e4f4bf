# SPDX-License-Identifier: GPL-2.0-or-later
"""The filesystems that are compared: how each is made and mounted.  All on the same disk, one after the other."""
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def execute(command, **options):
    """A program to its end; its output."""
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", check=False, **options)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stdout[-2000:]}")
    return done.stdout


# A newer mkfs.xfs than the guest's own: where the agent mounts its image.
XFSPROGS = Path("/tmp/xfsprogs")
NEW_MKFS_XFS = XFSPROGS / "usr/sbin/mkfs.xfs"


class Filesystem:
    """mkfs: how it is made, None if not on the disk.  kind: for mount.  Mounted with its default options."""

    def __init__(self, name, mkfs, version=None, mount_words=(), kind=None):
        self.name, self.mkfs, self.version_words, self.mount_words, self.kind = name, mkfs, version, mount_words, kind or name

    def on_disk(self):
        return self.mkfs is not None

    def mount(self, disk, path):
        path.mkdir(exist_ok=True)
        if not self.on_disk():
            execute(["mount", "-t", self.kind, *self.mount_words, self.name, path])
            return
        # Nothing of the one before: the image file is punched, so all find it empty.
        execute(["blkdiscard", "-f", disk])
        execute([*self.mkfs, disk])
        execute(["mount", "-t", self.kind, *self.mount_words, disk, path])

    def describe(self):
        made = " ".join(map(str, self.mkfs)).replace(f"{ROOT}/", "") if self.mkfs else "no disk"
        return f"{made}; mount -t {self.kind}{''.join(f' {word}' for word in self.mount_words)}"

    def geometry(self, disk):
        """What mkfs would make of it, as far as it tells; empty."""
        if self.kind != "xfs":
            return ""
        return " ".join(execute([*(word for word in self.mkfs if word != "-q"), "-N", disk]).split())

    def version(self):
        if not self.version_words:
            return ""
        done = subprocess.run(self.version_words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        return (done.stdout.strip().splitlines() or ["?"])[0]


FILESYSTEMS = {fs.name: fs for fs in (
    Filesystem("tux3", [ROOT / "build/mkfs.tux3", "-q", "-f"], [ROOT / "build/mkfs.tux3", "--version"]),
    Filesystem("tmpfs", None, mount_words=("-o", "size=75%")),
    # Tables that are made lazily would be written while we measure.
    Filesystem("ext4", ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"], ["mkfs.ext4", "-V"]),
    Filesystem("xfs", ["mkfs.xfs", "-q", "-f"], ["mkfs.xfs", "-V"]),
    *(Filesystem(f"xfs-parent{n}", [NEW_MKFS_XFS, "-q", "-f", "-n", f"parent={n}"], [NEW_MKFS_XFS, "-V"], kind="xfs") for n in (0, 1)),
    Filesystem("btrfs", ["mkfs.btrfs", "-q", "-f"], ["mkfs.btrfs", "--version"]),
)}


def mount_line(path):
    """Type and options of what is mounted there, as the kernel has them."""
    for line in open("/proc/self/mountinfo"):
        fields = line.split()
        if fields[4] == os.path.realpath(path):
            kind, _, options = fields[fields.index("-") + 1:]
            return f"{kind} {fields[5]},{options}"
    return None
