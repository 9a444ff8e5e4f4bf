# SPDX-License-Identifier: GPL-2.0-or-later
"""Real work on a mount: a kernel headers tree, a git clone, a build; the same after unmounting and mounting."""
import hashlib
import os
import stat
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def command(*words, cwd=None, **env):
    done = subprocess.run([str(word) for word in words], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=600, env={**os.environ, **env})
    assert done.returncode == 0, (words, done.stdout[-3000:])
    return done.stdout


def checksums(root):
    """Relative path: type, mode, and a checksum of the contents or the symlink's target."""
    found = {}
    for base, directories, files in os.walk(root):
        for name in directories + files:
            path = os.path.join(base, name)
            mode = os.lstat(path).st_mode
            what = ""
            if stat.S_ISREG(mode):
                with open(path, "rb") as f:
                    what = hashlib.sha256(f.read()).hexdigest()
            elif stat.S_ISLNK(mode):
                what = os.readlink(path)
            found[os.path.relpath(path, root)] = (mode, what)
    return found


@pytest.fixture(scope="session")
def headers():
    """A Debian kernel headers tree outside the mount."""
    done = subprocess.run([ROOT / "scripts/headers-tree"], capture_output=True, text=True)
    if done.returncode:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no kernel headers tree: {done.stderr.strip()}")
    return Path(done.stdout.strip())


@pytest.fixture
def large_mount(mkfs, mount):
    image = mkfs("4G")
    return image, mount(image)


def remounted(mount, fsck, image, mounted):
    """Unmount, check, mount again."""
    mounted.unmount()
    fsck(image, "--data")
    return mount(image)


def test_kernel_headers(headers, large_mount, mount, fsck):
    image, m = large_mount
    expected = checksums(headers)
    assert len(expected) > 9000
    command("cp", "-a", headers, m.path)
    assert checksums(m / headers.name) == expected
    m = remounted(mount, fsck, image, m)
    assert checksums(m / headers.name) == expected
    command("rm", "-r", m / headers.name)
    assert os.listdir(m.path) == []
    m = remounted(mount, fsck, image, m)
    assert os.listdir(m.path) == []
    m.unmount()


def test_archive_of_kernel_headers(headers, large_mount, mount, fsck):
    """Unpacked by tar, several at once."""
    image, m = large_mount
    expected = checksums(headers)
    copies = [m / f"copy{n}" for n in range(3)]
    pipes = [f"mkdir {copy} && tar -C {headers} -c . | tar -C {copy} -x" for copy in copies]
    running = [subprocess.Popen(["bash", "-c", f"set -o pipefail; {pipe}"]) for pipe in pipes]
    assert [process.wait(300) for process in running] == [0, 0, 0]
    m = remounted(mount, fsck, image, m)
    for copy in copies:
        assert checksums(m / os.path.basename(copy)) == expected
    m.unmount()


def test_git_clone_and_build(large_mount, mount, fsck, tmp_path, monkeypatch):
    """This repository, as it is committed, cloned into the mount; this project, as it is here, built in it."""
    image, m = large_mount
    # Somebody else may own the repository; git reads that this is all right only from here.
    (tmp_path / ".gitconfig").write_text("[safe]\n\tdirectory = *\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    if (ROOT / ".git").exists():
        command("git", "clone", "-q", "--no-hardlinks", ROOT, m / "clone")
        command("git", "-C", m / "clone", "fsck", "--strict")
    os.mkdir(m / "source")
    command("sh", "-c", f"tar -C {ROOT} -c --exclude=./.git --exclude=./build --exclude=./cache --exclude='*.img' "
            f"--exclude=./mnt . | tar -C {m / 'source'} -x")
    command("make", "-j2", "all", cwd=m / "source", TUX3_BUILD="")
    assert "Usage" in command(m / "source/build/tux3-fuse", "--help")
    expected = checksums(m.path)
    m = remounted(mount, fsck, image, m)
    assert checksums(m.path) == expected
    assert "Usage" in command(m / "source/build/tux3-fuse", "--help")
    if os.path.exists(m / "clone"):
        command("git", "-C", m / "clone", "fsck", "--strict")
        assert command("git", "-C", m / "clone", "status", "--porcelain") == ""
    # Nothing is older than what was made of it.
    command("make", "-q", "all", cwd=m / "source", TUX3_BUILD="")
    command("make", "clean", cwd=m / "source", TUX3_BUILD="")
    m = remounted(mount, fsck, image, m)
    assert not os.path.exists(m / "source/build")
    m.unmount()
