# SPDX-License-Identifier: GPL-2.0-or-later
"""mkfs.tux3 where something else is, or was, and where it fails."""
import os
import resource
import shutil
import signal
import struct
import subprocess

import pytest

from test_tools import sentence
from tools_helpers import digest

USAGE = 16
MB = 1 << 20
SIZE = 16 * MB
MINIMUM = {"xfs": 400 * MB, "f2fs": 64 * MB, "btrfs": 128 * MB, "zfs_member": 64 * MB}


def at(*pieces):
    """Something that writes these (offset, bytes) into a file; an offset below 0 is from its end."""
    def write(path):
        with open(path, "r+b") as f:
            for offset, data in pieces:
                f.seek(offset, os.SEEK_END if offset < 0 else os.SEEK_SET)
                f.write(data)
    return write


def program(*command):
    def make(path):
        if not shutil.which(command[0]):
            pytest.skip(f"there is no {command[0]} here")
        subprocess.run([*command, path], check=True, capture_output=True)
    return make


def md_super(version, offset):
    """The superblock of a RAID, as mdadm writes it: enough for libblkid."""
    data = bytearray(4096)
    struct.pack_into("<IIII", data, 0, 0xa92b4efc, 1, 0, 0)
    struct.pack_into("<Q", data, 144, (SIZE + offset if offset < 0 else offset) // 512)		# super_offset
    return at((offset, bytes(data)))


def zfs():
    """Uberblocks in all four labels."""
    magic = struct.pack("<QQ", 0x00bab10c, 5000)
    return at(*((label + (128 << 10) + i * 1024, magic) for i in range(8)
                for label in (0, 256 << 10, -512 << 10, -256 << 10)))


def gpt(path):
    """As a partitioning program leaves it when the first header has been lost: the one at the end counts."""
    import zlib
    entries = bytes(128 * 128)
    last = SIZE // 512 - 1
    header = bytearray(struct.pack("<8sIIIIQQQQ16sQIII", b"EFI PART", 0x10000, 92, 0, 0, last, 1, 34, last - 33,
                                   b"0123456789abcdef", last - 32, 128, 128, zlib.crc32(entries)))
    struct.pack_into("<I", header, 16, zlib.crc32(bytes(header)))
    mbr = bytearray(512)
    struct.pack_into("<8B2I", mbr, 446, 0, 0, 2, 0, 0xee, 255, 255, 255, 1, last)
    mbr[510:] = b"\x55\xaa"
    at((0, bytes(mbr)), (last * 512, bytes(header)), ((last - 32) * 512, entries))(path)


BCACHEFS = bytes.fromhex("c68573f666ce90a9d96a60cf803df7ef")
LVM = b"LABELONE" + struct.pack("<QII", 1, 0, 32) + b"LVM2 001" + b"0123456789abcdef0123456789abcdef"
OTHERS = {
    "ext4": program("mkfs.ext4", "-q", "-F"),
    "ext2": program("mke2fs", "-q", "-F"),
    "swap": program("mkswap"),
    "minix": program("mkfs.minix"),
    "bfs": program("mkfs.bfs"),
    "cramfs": at((0, struct.pack("<IIII16s", 0x28cd3d45, 4096, 3, 0, b"Compressed ROMFS"))),
    "squashfs": at((0, b"hsqs" + bytes(24) + struct.pack("<HH", 4, 0))),
    "xfs": program("mkfs.xfs", "-q"),
    "ntfs": program("mkfs.ntfs", "-F", "-Q"),
    "exfat": program("mkfs.exfat"),
    "f2fs": program("mkfs.f2fs"),
    "btrfs": program("mkfs.btrfs", "-q", "-M"),
    "vfat": program("mkfs.vfat"),
    "iso9660": at((32768, b"\1CD001\1" + bytes(2041)), (34816, b"\xffCD001\1")),
    "bcachefs": at((4096 + 24, BCACHEFS), (-MB + 24, BCACHEFS)),
    "zfs_member": zfs(),
    "linux_raid_member": md_super(1.0, -8192),
    "linux_raid_member 1.2": md_super(1.2, 4096),
    "LVM2_member": at((512, LVM)),
    "crypto_LUKS": at((0, b"LUKS\xba\xbe\0\1"), (16384, b"SKUL\xba\xbe")),
    "gpt": gpt,
    "dos": at((446, struct.pack("<8B2I", 0x80, 1, 1, 0, 0x83, 254, 255, 255, 1, 4096)), (510, b"\x55\xaa")),
}


def recognised(path):
    """What wipefs(8) and blkid(8) see, but Tux3, which the libblkid of Debian 12 does not know."""
    def run(*command):
        return subprocess.run([*command, path], capture_output=True, text=True).stdout
    seen = [line for line in run("wipefs", "-n", "-i", "-O", "TYPE").splitlines()[1:] if "tux3" not in line]
    return seen + [line for line in run("blkid", "-p").splitlines() if 'TYPE="tux3"' not in line]


@pytest.mark.parametrize("what", OTHERS)
def test_others_are_refused_and_wiped(run, image, fsck, what):
    path = image(MINIMUM.get(what, SIZE))
    OTHERS[what](path)
    before = digest(path)
    refused = sentence(run("mkfs.tux3", path, status=1))
    assert f"({what.split()[0]})" in refused and "use -f" in refused
    assert "use -f" in sentence(run("mkfs.tux3", "-s", "8M", path, status=1))
    assert digest(path) == before
    for size in ("8M", os.path.getsize(path)):		# a part of it, all of it
        subprocess.run(["cp", path, f"{path}.copy"], check=True)
        run("mkfs.tux3", "-f", "-s", size, f"{path}.copy")
        assert recognised(f"{path}.copy") == []
        fsck(f"{path}.copy")


def test_wipes_an_older_volume(run, image, fsck):
    """Neither of a larger nor of a smaller one is anything left."""
    path = image(SIZE)
    for size in ("16M", "6M", "12M"):
        run("mkfs.tux3", "-f", "-L", size, "-s", size, path)
        assert size in run("tux3", "show", path).stdout
        fsck(path)


def test_discard(run, image):
    """What the volume does not use is given back, but only of the volume."""
    path = image(SIZE)
    path.write_bytes(b"x" * SIZE)
    run("mkfs.tux3", "-K", path)
    assert os.stat(path).st_blocks * 512 > SIZE - MB
    run("mkfs.tux3", "-f", "-s", "8M", path)
    assert SIZE - 9 * MB < os.stat(path).st_blocks * 512 < SIZE - 7 * MB
    # The last 128 KiB held anchors of the larger volume.
    assert path.read_bytes()[8 * MB:-MB] == b"x" * (SIZE - 9 * MB)


@pytest.mark.parametrize("args, said", [
    (["10k"], "is a size"), (["/dev/no-such-disk"], "no device"), (["-s", "1G", "a.img", "2G"], "two sizes"),
    (["a.img"], "give a size"), (["a.img", "ten"], "no size"), (["a.img", "4K4"], "no size"), (["a.img", "99999999T"], "too large"),
    (["a.img", "99999999999999999999"], "too large")])
def test_wrong_use_is_told(run, tmp_path, args, said):
    done = run("mkfs.tux3", *args, status=USAGE, cwd=tmp_path)
    assert said in sentence(done) and os.listdir(tmp_path) == []


def test_too_large_for_its_blocks(run, tmp_path):
    done = run("mkfs.tux3", "a.img", "1E", status=1, cwd=tmp_path)
    assert "1152921504606846976 bytes are too many for a volume with blocks of 4096 bytes; larger blocks" in sentence(done)
    assert os.listdir(tmp_path) == []


def test_no_file_among_the_devices(run):
    assert "no device" in sentence(run("mkfs.tux3", "/dev/no-such-disk", "64M", status=1))
    assert not os.path.exists("/dev/no-such-disk")


def test_failure_leaves_nothing(run, build, tmp_path):
    """Too small, no place for it, a limit: a new file is gone, an old one is as it was."""
    def limited():
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)	# Python ignores it
        resource.setrlimit(resource.RLIMIT_FSIZE, (100 << 10, 100 << 10))

    new, old = tmp_path / "new.img", tmp_path / "old.img"
    old.write_bytes(b"old" * 2000000)
    before = digest(old)
    assert "10240 bytes are too few" in sentence(run("mkfs.tux3", new, "10k", status=1))
    for args in ([new, "64M"], ["-f", old, "64M"], ["-f", old]):
        done = subprocess.run([str(build / "mkfs.tux3"), *map(str, args)], capture_output=True, text=True,
                              preexec_fn=limited)
        assert done.returncode == 1
        sentence(done)
        assert not new.exists() and digest(old) == before


def test_no_space_leaves_nothing(run, tmp_path):
    where = tmp_path / "full"
    where.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "none", where], check=True)
    try:
        old = where / "old.img"
        old.write_bytes(b"something")
        os.truncate(old, 16 * MB)
        (where / "filler").write_bytes(bytes((1 << 20) - 8192))
        before = digest(old)
        assert "No space" in sentence(run("mkfs.tux3", "-f", old, status=1))
        assert digest(old) == before
        assert "No space" in sentence(run("mkfs.tux3", where / "new.img", "16M", status=1))
        assert sorted(os.listdir(where)) == ["filler", "old.img"]
    finally:
        subprocess.run(["umount", where], check=True)


@pytest.mark.parametrize("label,byte", [("a\nb", "byte 2 is 0x0a"), ("\x1b[31m", "byte 1 is 0x1b"), ("ok\x7f", "byte 3 is 0x7f"),
                                        ("x" * 65, "up to 64 bytes, not 65")])
def test_labels_that_are_none(run, image, label, byte):
    path = image("16M")
    done = run("mkfs.tux3", "-L", label, path, status=16)
    assert byte in done.stderr and "\x1b" not in done.stderr
    assert not any(path.read_bytes())


@pytest.mark.parametrize("label", ["", "x" * 64, "Grüße, 日本", "a b\\ \"c\""])
def test_labels(run, image, label):
    path = image("16M")
    run("mkfs.tux3", "-L", label, path)
    assert run("tux3", "show", "--json", path).stdout


@pytest.mark.parametrize("arguments,says", [
    (["-U", "00000000-0000-0000-0000-000000000000"], "UUID of zeros"), (["-b", "4096", "-b", "8192"], "two block sizes"),
])
def test_contradictions(run, image, arguments, says):
    path = image("16M")
    before = digest(path)
    assert says in sentence(run("mkfs.tux3", *arguments, path, status=USAGE))
    assert digest(path) == before
    run("mkfs.tux3", "-b", 8192, "-b", "8K", "-U", "00000000-0000-0000-0000-000000000001", "-U", "random", path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=lambda n: n.name)
@pytest.mark.parametrize("new", [True, False])
def test_interrupted(run, build, tmp_path, number, new):
    """At any write: a file that it made is gone; one that was there holds no volume, or a whole one."""
    if not shutil.which("strace"):
        pytest.skip("no strace here")
    path, ends = tmp_path / "x.img", set()
    for write in range(1, 20):
        path.unlink(missing_ok=True)
        if not new:
            path.write_bytes(bytes(16 * MB))
        done = subprocess.run(["strace", "-f", "-o", os.devnull, "-e", "trace=pwritev", "-e",
                               f"inject=pwritev:signal={number.name[3:]}:when={write}", build / "mkfs.tux3", "-q", path, "16M"],
                              capture_output=True, text=True)
        if "strace: " in done.stderr:
            pytest.skip("strace may not trace here")
        ends.add(done.returncode)
        if not done.returncode:
            break
        assert done.returncode in (-number, 128 + number)
        assert path.exists() != (new and number != signal.SIGKILL)
        if path.exists():
            found = run("fsck.tux3", path, status=None)
            assert not found.returncode or "no Tux3 volume" in found.stderr
    assert 0 in ends and len(ends) > 1
