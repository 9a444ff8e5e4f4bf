# SPDX-License-Identifier: GPL-2.0-or-later
"""What goes wrong in a careless user's hands: a sentence with the name in it, and nothing half done is left."""
import os
import subprocess

import pytest

from test_tools import sentence
from tools_helpers import fill


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 4 MiB that is full but for 16 KiB."""
    path = tmp_path / "small"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4M", "tmpfs", path], check=True)
    try:
        (path / "fill").write_bytes(bytes((4 << 20) - (16 << 10)))
        yield path
    finally:
        subprocess.run(["umount", path], check=True)


def test_mkfs_names_what_it_is_about(run, tmp_path):
    (tmp_path / "dangling").symlink_to("nowhere")
    for args, said in ((("dangling", "64M"), "is a symbolic link to something that does not exist"),
                       (("no-folder/x", "64M"), "cannot be made: No such file or directory"),
                       (("x", "10k"), "too few for a volume"), (("x", "8000000T"), "too large")):
        text = sentence(run("mkfs.tux3", *args, status=1, cwd=tmp_path))
        assert f"mkfs.tux3: {args[0]}" in text and said in text, text
        assert os.listdir(tmp_path) == ["dangling"]


@pytest.mark.parametrize("args", [("mkfs.tux3", "OUT", "64M"), ("tux3", "image", "IN", "OUT"), ("tux3", "image", "--scramble", "IN", "OUT"),
                                  ("tux3", "graph", "IN", "--limit", "100000", "-o", "OUT")])
def test_a_full_disk(run, build, mkfs, small_disk, args):
    path = mkfs("64M")
    fill(build, path)
    out = small_disk / "out"
    words = [str({"IN": path, "OUT": out}.get(word, word)) for word in args]
    text = sentence(run(*words, status=1))
    assert str(out) in text and "o space left on" in text
    assert os.listdir(small_disk) == ["fill"]


@pytest.mark.parametrize("args,status", [(("tux3", "stat"), 1), (("tux3", "show"), 1), (("tux3", "graph"), 1), (("fsck.tux3",), 8),
                                         (("fsck.tux3", "--json"), 8)])
def test_output_that_goes_nowhere(build, mkfs, args, status):
    with open("/dev/full", "w") as full:
        done = subprocess.run([str(build / args[0]), *args[1:], str(mkfs("16M"))], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == status
    assert done.stderr.startswith(f"{args[0]}: The ") and "No space left on device" in done.stderr


def test_a_remount_of_something_else(build, tmp_path):
    for name in ("mount.tux3", "mount.fuse.tux3"):
        (tmp_path / name).symlink_to(build / "tux3-fuse")
        done = subprocess.run([tmp_path / name, "none", "/proc", "-o", "remount,noexec"], capture_output=True, text=True)
        assert done.returncode == 32 and "/proc is no Tux3 volume: a proc file system is mounted there." in done.stderr


def test_numbers(run, mkfs):
    path = mkfs("16M")
    assert '"x" is no number' in sentence(run("tux3", "graph", path, "--limit", "x", status=16))
    assert '"x" is no number' in sentence(run("fsck.tux3", path, "--limit", "x", status=16))


@pytest.mark.parametrize("program", ["mkfs.tux3", "fsck.tux3", "tux3", "tux3-fuse", "tux3-sim"])
def test_version_and_wrong_options(run, program):
    assert run(program, "--version").stdout.startswith(f"{program} 0.1.0")
    text = run(program, "--no-such-option", status=None).stderr
    assert f"{program}: " in text and "--no-such-option" in text and "--help" in text
