# SPDX-License-Identifier: GPL-2.0-or-later
"""tux3 scrub, of images and of volumes that tux3-fuse has mounted: what is damaged below is told with its path, and nothing else."""
import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import ROOT, catches, wait_until

sys.path.insert(0, str(ROOT / "tests/golden"))
import golden  # noqa: E402

BLOCK = 4096


def content(name, blocks):
    """Blocks that are nowhere else."""
    return b"".join(hashlib.sha256(f"{name} {i}".encode()).digest() * (BLOCK // 32) for i in range(blocks))


def damage(image, block):
    """Where this block lies in the image it has another bit from now on."""
    with open(image, "r+b", buffering=0) as f:
        at = f.read().index(block)
        assert at % BLOCK == 0
        f.seek(at + 100)
        f.write(bytes([block[100] ^ 8]))
        os.fsync(f.fileno())
    return at // BLOCK


def told(done):
    result = json.loads(done.stdout)
    return result["problems"], result["summary"]


def commit(mounted):
    """All that was done is in a delta: fsync=full."""
    fd = os.open(mounted.path, os.O_RDONLY)
    os.utime(fd)
    os.fsync(fd)
    os.close(fd)


@pytest.fixture
def filled(volume, mount):
    mounted = mount(volume, "fsync=full")
    os.makedirs(mounted / "a/b")
    for name in ("a/one", "a/b/two\nlines"):
        with open(mounted / name, "wb") as f:
            f.write(content(name, 30))
    with open(mounted / "a/b/valued", "wb") as f:
        os.setxattr(mounted / "a/b/valued", "user.large", content("value", 3))
        f.write(b"inline")
    commit(mounted)
    return mounted


def test_mounted(run, filled):
    clean = run("tux3", "scrub", filled.path)
    assert ": clean: " in clean.stdout and "0 problems" in clean.stdout
    at = damage(filled.image, content("a/b/two\nlines", 30)[7 * BLOCK:8 * BLOCK])
    said = run("tux3", "scrub", filled.path, status=4).stdout
    assert f'file data of "/a/b/two\\x0alines" (inode ' in said and f" at byte {7 * BLOCK}, 1 block at block {at}: checksum " in said
    damage(filled.image, content("value", 3)[BLOCK:2 * BLOCK])
    problems, summary = told(run("tux3", "scrub", filled / "a", "--json", status=4))
    assert [(p["kind"], p["path"]) for p in sorted(problems, key=lambda p: p["kind"])] == [
        ("data", "/a/b/two\nlines"), ("xattr", "/a/b/valued")]
    assert problems[0]["inode"] == os.stat(filled / "a/b/two\nlines").st_ino or problems[0]["kind"] == "xattr"
    assert summary["problems"] == 2 and summary["exit"] == 4 and summary["finished"] and not summary["clean"]
    stat = json.loads(run("tux3", "stat", filled.path, "--json").stdout)
    assert stat["scrub_problems"]["value"] == 3 and stat["scrubbed_blocks"]["value"] > 150
    # What is written again is whole again.
    with open(filled / "a/b/two\nlines", "r+b") as f:
        f.write(content("other", 30))
    os.setxattr(filled / "a/b/valued", "user.large", b"v" * 9000)
    commit(filled)
    run("tux3", "scrub", filled.path)


def test_image(run, filled):
    image = filled.image
    filled.unmount()
    problems, summary = told(run("tux3", "scrub", image, "--json"))
    assert not problems and summary["clean"] and summary["blocks"] >= 63 and summary["nodes"] >= 3
    at = damage(image, content("a/one", 30)[:BLOCK])
    damage(image, content("a/one", 30)[BLOCK:2 * BLOCK])
    problems, _ = told(run("tux3", "scrub", image, "--json", status=4))
    assert len(problems) == 1 and problems[0]["path"] == "/a/one" and problems[0]["block"] == at and problems[0]["blocks"] == 2
    assert problems[0]["offset"] == 0 and "checksum" in problems[0]["text"] and not problems[0]["unreadable"]
    # Cleaned up by who has the mount fixture's volume.
    assert run("fsck.tux3", "-n", "--data", image, status=4).stdout.count("data-checksum") == 2


@contextlib.contextmanager
def load(mounted):
    stop = threading.Event()

    def write(seed):
        n = 0
        while not stop.is_set():
            path = mounted / f"{seed}-{n % 20}"
            with open(path, "wb") as f:
                f.write(content(f"{seed} {n}", n % 40))
                if n % 5 == 0:
                    os.fsync(f.fileno())
            if n % 3 == 0:
                os.unlink(path)
            n += 1

    threads = [threading.Thread(target=write, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_beside_load(run, mounted):
    """While files are written, removed and synced nothing is told."""
    with load(mounted):
        for _ in range(15):
            problems, summary = told(run("tux3", "scrub", mounted.path, "--json"))
            assert not problems and summary["compared"] and summary["inodes"] > 1


@pytest.mark.parametrize("name", ["links", "dir-loop", "parent-missing", "quota-usage"])
def test_compare(run, mount, tmp_path, name):
    """What does not fit together is told with its path, beside load, too; and nothing of it without the comparison."""
    packed = golden.Packed(sorted(ROOT.glob("tests/golden/[0-9]*/damaged.xz"))[-1])
    which = next(image for image in packed.images if image.startswith(name + "-"))
    image = tmp_path / "damaged.img"
    packed.unpack(which, image)
    must = [line.split(":")[1].split("(")[0].strip() for line in run("fsck.tux3", "-n", image, status=4).stdout.splitlines()[:-1]]
    mounted = mount(image)
    for beside in (contextlib.nullcontext(), load(mounted)):
        with beside:
            for _ in range(3):
                problems, summary = told(run("tux3", "scrub", mounted.path, "--json", status=4))
                assert [problem["name"] for problem in problems] == must, problems
                assert all(problem["kind"] == "check" and problem["text"] for problem in problems)
                assert name != "links" or problems[0]["path"].startswith("/")
                assert summary["compared"] and summary["exit"] == 4
    assert f"{mounted.path}: {name} (" in run("tux3", "scrub", mounted.path, status=4).stdout
    problems, summary = told(run("tux3", "scrub", mounted.path, "--json", "--no-check"))
    assert not problems and not summary["compared"]
    mounted.unmount()


@pytest.mark.parametrize("block", [8, 64])
def test_large_blocks(run, mkfs, mount, block):
    mounted = mount(mkfs("256M", "-b", str(block << 10), "-O", "quota"))
    for i in range(300):
        Path(mounted / f"file {i}").write_bytes(b"x" * 500 * i)
    problems, summary = told(run("tux3", "scrub", mounted.path, "--json"))
    assert not problems and summary["compared"] and summary["inodes"] >= 301
    mounted.unmount()


def test_another_volume(run, mkfs, mount):
    """The image was moved, and something else has its name: nothing of that is told."""
    image = mkfs("64M")
    mounted = mount(image)
    Path(mounted / "file").write_bytes(b"x")
    os.rename(image, f"{image}.moved")
    run("mkfs.tux3", "-q", image, "64M")
    done = run("tux3", "scrub", mounted.path, "--json", status=8)
    problems, summary = told(done)
    assert not problems and not summary["clean"] and not summary["compared"] and "another volume" in done.stderr


def test_two(build, mounted):
    """One waits for the other."""
    scrubs = [subprocess.Popen([build / "tux3", "scrub", mounted.path], stdout=subprocess.DEVNULL) for _ in range(8)]
    assert [scrub.wait(60) for scrub in scrubs] == [0] * 8


def test_state(build, run, filled, tmp_path):
    """Interrupted, it goes on where it was; a state of another volume is refused; the rate is kept."""
    with open(filled / "large", "wb") as f:
        f.write(content("large", 2000))
    commit(filled)
    state = tmp_path / "state"
    run("tux3", "scrub", filled.path)  # makes an anchor: no node is dirty then
    whole = told(run("tux3", "scrub", filled.path, "--json"))[1]
    begun = time.monotonic()
    scrub = subprocess.Popen([build / "tux3", "scrub", filled.path, "--rate", "2M", "--state", state, "--json"],
                             stdout=subprocess.PIPE, text=True)
    wait_until(lambda: catches(scrub, signal.SIGINT), "its handler of signals")
    time.sleep(1.5)
    # A pause, as by the terminal.
    scrub.send_signal(signal.SIGSTOP)
    time.sleep(0.2)
    scrub.send_signal(signal.SIGCONT)
    scrub.send_signal(signal.SIGINT)
    out = scrub.communicate(timeout=30)[0]
    assert scrub.returncode == 32, out
    part = json.loads(out)["summary"]
    assert not part["finished"] and not part["clean"] and 0 < part["bytes_read"] <= (2 << 20) * (time.monotonic() - begun + 1)
    assert part["blocks"] < whole["blocks"] and state.exists()
    # What is damaged in front of it was seen whole; behind it, it is found.
    rest = told(run("tux3", "scrub", filled.path, "--state", state, "--json"))[1]
    assert rest["resumed"] and rest["finished"] and rest["clean"] and rest["blocks"] == whole["blocks"]
    assert rest["nodes"] == whole["nodes"] and not state.exists()
    state.write_text("cursor " + "ff" * 32 + "\n")
    assert "is not what" in run("tux3", "scrub", filled.path, "--state", state, status=8).stderr
    state.write_text("nothing of ours\n")
    assert "is not what" in run("tux3", "scrub", filled.path, "--state", state, status=8).stderr


def test_interrupted_while_it_reads(build, filled):
    """It ends then, and does not wait first until the rate allows for what it has read."""
    if not shutil.which("strace"):
        pytest.skip("no strace here")
    filled.unmount()
    ends = set()
    for number in range(8, 20):
        done = subprocess.run(["strace", "-o", os.devnull, "-e", f"inject=pread64:signal=TERM:when={number}", build / "tux3", "scrub",
                               filled.image, "--rate", "1"], capture_output=True, text=True, timeout=60)
        if "strace: " in done.stderr:
            pytest.skip("strace may not trace here")
        ends.add(done.returncode)
    # Before it catches signals, and after that; all of these are there, or it would go on at that rate.
    assert 32 in ends and ends <= {-signal.SIGTERM, 32}, ends


@pytest.mark.parametrize("place", ["no/such/folder/state", "/dev/null/state", "folder", "/proc/state"])
def test_state_that_cannot_be_written(run, mkfs, tmp_path, place):
    """Is told at once, and not after hours."""
    path = mkfs("64M")
    (tmp_path / "folder").mkdir()
    done = run("tux3", "scrub", path, "--state", tmp_path / place, status=8)
    assert f"{tmp_path / place} " in done.stderr
    assert "clean" not in done.stdout and not list((tmp_path / "folder").iterdir()) and not (tmp_path / "folder.new").exists()


def test_state_that_is_no_file(run, mkfs, tmp_path):
    """Nobody is told to remove it, and nothing waits for who would write to a pipe."""
    path = mkfs("64M")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for place in ("/dev/null", tmp_path / "folder", tmp_path / "pipe"):
        done = run("tux3", "scrub", path, "--state", place, status=8)
        assert f"{place} " in done.stderr and "regular file" in done.stderr and "remove" not in done.stderr


@pytest.mark.parametrize("content", [b"", b"cursor\n", b"cursor\t" + b"g" * 64 + b"\n", b"cursor 0\n", b"cursor " + b"0" * 63 + b"g\n", b"cursor " + b"0" * 65 + b"\n",
                                     b"nodes 1\n", b"\0" * 100, bytes(range(256)), b"x" * 100000, b"cursor " * 1000])
def test_state_that_it_has_not_saved(run, mkfs, tmp_path, content):
    path, state = mkfs("64M"), tmp_path / "state"
    state.write_bytes(content)
    done = run("tux3", "scrub", path, "--state", state, status=8)
    assert "not what tux3 scrub has saved" in done.stderr or "verify" in done.stderr or "of another volume" in done.stderr, done
    assert state.read_bytes() == content


def test_json_of_a_long_path(run, mkfs, tmp_path):
    """Each byte of it may take six."""
    folder = tmp_path / "/".join(["\x01" * 200] * 15)
    folder.mkdir(parents=True)
    shutil.move(mkfs("64M"), folder / "x")
    assert told(run("tux3", "scrub", "--json", folder / "x"))[1]["volume"] == str(folder / "x")


def test_what_is_beside_the_state_stays(run, mkfs, tmp_path):
    """Whether it can be saved is tried under the name it is saved by at first, which may be another's file."""
    path, state, new = mkfs("64M"), tmp_path / "state", tmp_path / "state.new"
    new.write_text("mine")
    assert "clean" in run("tux3", "scrub", path, "--state", state).stdout
    assert new.read_text() == "mine" and not state.exists()


def test_state_of_another(run, mkfs, tmp_path, build):
    one, two, state = mkfs("64M"), mkfs("64M"), tmp_path / "state"
    # At a rate that it cannot end with.
    scrub = subprocess.Popen([build / "tux3", "scrub", one, "--rate", "1", "--state", state])
    wait_until(lambda: scrub.poll() is not None or catches(scrub, signal.SIGTERM), "its handler of signals")
    time.sleep(0.5)
    scrub.send_signal(signal.SIGTERM)
    assert scrub.wait(30) in (0, 32)
    if state.exists():
        assert "of another volume" in run("tux3", "scrub", two, "--state", state, status=8).stderr


def test_refused(run, tmp_path, filled):
    assert "knows how to scrub" in run("tux3", "scrub", tmp_path, status=8).stderr
    run("tux3", "scrub", tmp_path / "nothing", status=8)
    run("tux3", "scrub", status=16)
    run("tux3", "scrub", filled.path, "--rate", "fast", status=16)
    code = "import os, sys; os.setresuid(1000, 1000, 1000); os.execv(sys.argv[1], sys.argv[1:])"
    done = subprocess.run(["python3", "-c", code, str(run.__closure__[0].cell_contents / "tux3"), "scrub", filled.path],
                          capture_output=True, text=True)
    assert done.returncode == 8 and "only root" in done.stderr


def test_unmount(build, filled):
    """A scrub keeps the volume mounted, and lets go of it when it is interrupted."""
    scrub = subprocess.Popen([build / "tux3", "scrub", filled.path, "--rate", "1K"], stdout=subprocess.DEVNULL)
    wait_until(lambda: catches(scrub, signal.SIGINT), "its handler of signals")
    time.sleep(0.5)
    assert scrub.poll() is None
    assert subprocess.run(["umount", filled.path], capture_output=True).returncode != 0
    scrub.send_signal(signal.SIGINT)
    assert scrub.wait(30) == 32
    filled.unmount()
