# SPDX-License-Identifier: GPL-2.0-or-later
"""One volume under several names: files, the loop devices attached to them, what is mounted or swapped to."""
import contextlib
import os
import subprocess

import pytest

from conftest import wait_until
from test_tools import sentence
from tools_helpers import digest, fill

OPERATION = 8


@contextlib.contextmanager
def loop_device(path, *options):
    device = subprocess.run(["losetup", "-f", "--show", *options, str(path)], check=True, capture_output=True,
                            text=True).stdout.strip()
    try:
        yield device
    finally:
        subprocess.run(["losetup", "-d", device], check=True)


def refused(build, image, directory):
    """Mounting it fails, and says why."""
    done = subprocess.run([str(build / "tux3-fuse"), str(image), str(directory)], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode != 0 and "in use" in done.stderr, (done.returncode, done.stderr)


READERS = ((["fsck.tux3"], OPERATION), (["tux3", "show"], 1), (["tux3", "stat"], 1), (["tux3", "graph"], 1))


def readers_refuse(run, path):
    for args, status in READERS:
        assert "in use" in sentence(run(*args, path, status=status))
    assert "in use" in sentence(run("tux3", "image", path, f"{path}.copy" if os.path.isfile(path) else "/tmp/no.copy",
                                    status=1))


@pytest.mark.parametrize("file_first", [True, False])
def test_file_and_its_loop_device(build, run, volume, mount, tmp_path, file_first):
    with loop_device(volume) as loop:
        first, second = (volume, loop) if file_first else (loop, volume)
        m = mount(first)
        with open(m / "file", "w") as f:
            f.write("x")
        refused(build, second, tmp_path)
        readers_refuse(run, second)
        assert "in use" in sentence(run("mkfs.tux3", "-f", second, status=1))
        m.unmount()
        m = mount(second)
        assert os.listdir(m.path) == ["file"]
        m.unmount()


def test_two_loop_devices_of_a_file(build, volume, mount, tmp_path):
    with loop_device(volume) as one, loop_device(volume) as two, loop_device(two) as three:
        for first, others in ((one, (two, three)), (three, (one, two, volume)), (two, (one, three))):
            m = mount(first)
            for other in others:
                refused(build, other, tmp_path)
            m.unmount()


def test_readers_do_not_lock_each_other_out(build, run, mkfs):
    path = mkfs("32M")
    fill(build, path)
    with loop_device(path) as loop:
        running = [subprocess.Popen([str(build / "fsck.tux3"), "--data", p], stdout=subprocess.DEVNULL)
                   for p in (loop, path) * 5]
        assert [process.wait(120) for process in running] == [0] * 10


def test_mounted_by_the_kernel(run, build, image, tmp_path):
    """Any filesystem on the loop device stands for the module: it has the device, not the file."""
    path, where = image("16M"), tmp_path / "where"
    where.mkdir()
    subprocess.run(["mkfs.ext4", "-q", path], check=True)
    before = digest(path)
    with loop_device(path) as loop:
        assert "attached to" in sentence(run("mkfs.tux3", "-f", path, status=1))
        subprocess.run(["mount", "-o", "noload,ro", loop, where], check=True)
        subprocess.run(["umount", where], check=True)
        subprocess.run(["mount", loop, where], check=True)
        try:
            for name in (path, loop):
                assert "in use" in sentence(run("mkfs.tux3", "-f", name, status=1))
                readers_refuse(run, name)
                refused(build, name, tmp_path)
            assert f"mounted on {where}" in sentence(run("tux3", "show", loop, status=1))
        finally:
            subprocess.run(["umount", where], check=True)
    # Nothing but what ext4 wrote.
    subprocess.run(["e2fsck", "-fn", path], check=True, capture_output=True)
    assert before != digest(path)


def test_read_only_mount_may_be_read(run, image, tmp_path):
    path, where = image("16M"), tmp_path / "where"
    where.mkdir()
    subprocess.run(["mkfs.ext4", "-q", path], check=True)
    with loop_device(path) as loop:
        subprocess.run(["mount", "-o", "ro,noload", loop, where], check=True)
        try:
            for name in (path, loop):
                assert "no Tux3 volume" in sentence(run("tux3", "show", name, status=1))
                assert "in use" in sentence(run("mkfs.tux3", "-f", name, status=1))
        finally:
            subprocess.run(["umount", where], check=True)


def test_swap(run, image):
    path = image("16M")
    path.write_bytes(bytes(16 << 20))
    subprocess.run(["mkswap", path], check=True, capture_output=True)
    with loop_device(path) as loop:
        if subprocess.run(["swapon", loop], capture_output=True).returncode:
            pytest.skip("no swap here")
        try:
            for name in (path, loop):
                assert "in use" in sentence(run("mkfs.tux3", "-f", name, status=1))
        finally:
            subprocess.run(["swapoff", loop], check=True)
    assert "swap" in sentence(run("mkfs.tux3", path, status=1))


def test_stale_cache(build, run, mkfs):
    """What another has written past the page cache of a block device is seen, though that was in use meanwhile."""
    path = mkfs("32M")
    with loop_device(path) as loop, open(loop, "rb") as keeps_cache:
        keeps_cache.read(1 << 20)
        assert run("tux3", "stat", loop, "inodes").stdout.split()[1] == "1"
        fill(build, path)
        assert run("tux3", "stat", loop, "inodes").stdout.split()[1] == "305"


def test_mounted_in_another_namespace(build, run, volume, tmp_path):
    """It is said at once where: nobody waits for a daemon that is not about to end."""
    where = tmp_path / "where"
    where.mkdir()
    daemon = subprocess.Popen(["unshare", "-m", "--propagation", "private", str(build / "tux3-fuse"), "-f", str(volume), str(where)])
    try:
        wait_until(lambda: f" {where} " in open(f"/proc/{daemon.pid}/mountinfo").read(), "mount")
        assert not os.path.ismount(where)
        said = f"mounted on {where} in the mount namespace of process {daemon.pid}"
        assert said in sentence(run("fsck.tux3", volume, status=OPERATION))
        assert said in sentence(run("mkfs.tux3", "-f", volume, status=1))
    finally:
        daemon.terminate()
        daemon.wait(60)
    run("fsck.tux3", volume)


def test_where_a_file_is_mounted(run, volume, mount):
    m = mount(volume)
    assert f"{volume} is in use: mounted on {m.path}" in sentence(run("mkfs.tux3", "-f", volume, status=1))


@pytest.mark.parametrize("flag", ["i", "a"])
def test_chattr(build, run, volume, tmp_path, flag):
    if subprocess.run(["chattr", f"+{flag}", str(volume)], capture_output=True).returncode:
        pytest.skip("no chattr in this filesystem")
    try:
        assert f"chattr -ia {volume}" in sentence(run("mkfs.tux3", "-f", volume, status=1))
        done = subprocess.run([str(build / "tux3-fuse"), str(volume), str(tmp_path)], capture_output=True, text=True)
        assert done.returncode == 32 and "is immutable or append-only" in done.stderr
        run("fsck.tux3", volume)
    finally:
        subprocess.run(["chattr", f"-{flag}", str(volume)], check=True)


def test_output_never_replaces_a_volume_in_use(build, run, mkfs, mount, tmp_path):
    """Neither the one that is looked at, by whatever name, nor one that is mounted; nor a device."""
    path, other = mkfs("16M"), tmp_path / "other.img"
    run("mkfs.tux3", other, "16M")
    os.link(path, tmp_path / "link")

    def refuse(image, out, *words):
        before = digest(path), digest(other)
        for args in (["image", "-f", image, out], ["image", "-f", "-s", image, out], ["graph", image, "-o", out]):
            done = subprocess.run([str(build / "tux3"), *map(str, args)], capture_output=True, text=True)
            assert done.returncode in (1, 16) and any(word in done.stderr for word in words), (args, done)
        assert (digest(path), digest(other)) == before

    refuse(path, path, "itself")
    refuse(path, tmp_path / "link", "itself")
    with loop_device(path) as loop:
        refuse(loop, path, "itself")
        refuse(path, loop, "itself")
    with loop_device(other) as loop:
        refuse(path, loop, "not a regular file")
        refuse(path, other, "attached to")
    m = mount(other)
    refuse(path, other, "in use: mounted on")
    m.unmount()
    before = digest(other)
    assert "other.img is a Tux3 volume: choose another name" in run("tux3", "graph", path, "-o", other, status=1).stderr
    assert digest(other) == before
    run("tux3", "image", "-f", path, other)
    assert "digraph" in run("tux3", "graph", path, "-o", "/dev/stdout").stdout
