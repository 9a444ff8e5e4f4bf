# SPDX-License-Identifier: GPL-2.0-or-later
"""mkfs.tux3, fsck.tux3 and tux3 as programs."""
import json
import os
import re
import resource
import runpy
import shutil
import signal
import stat
import struct
import subprocess
import xml.etree.ElementTree

import pytest

from conftest import ROOT
from tools_helpers import BLOCK, Volume, add_to_log, as_json, digest, edit, edit_anchors, fill, seal

USAGE, PROBLEMS, OPERATION = 16, 4, 8


def sentence(done):
    """What went wrong, in one line that ends."""
    lines = done.stderr.strip().split("\n")
    lines = [line for line in lines if not line.startswith("Try ")]
    assert len(lines) == 1 and lines[0].endswith((".", "?")), done.stderr
    assert re.match(r"(mkfs\.tux3|fsck\.tux3|tux3): ", lines[0]), done.stderr
    return lines[0]


def synced(path, data):
    fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o640)
    os.write(fd, data)
    os.fsync(fd)
    os.close(fd)


@pytest.fixture
def filled(build, mkfs):
    path = mkfs("64M", "-L", "label")
    fill(build, path)
    return path


@pytest.fixture
def logged(build, filled):
    add_to_log(build, filled)
    return filled


# ---- help ----

@pytest.mark.parametrize("args", [["mkfs.tux3", "--help"], ["fsck.tux3", "--help"], ["tux3", "--help"],
                                  *[["tux3", "help", c] for c in ("show", "path", "stat", "graph", "image", "undo")],
                                  *[["tux3", c, h] for c in ("show", "path", "ls-inodes", "stat", "graph", "image", "quota", "scrub",
                                                             "defrag", "tune", "undo", "help") for h in ("--help", "-h")],
                                  ["tux3", "help", "help"]])
def test_help_has_examples(run, args):
    assert "Examples:" in run(*args).stdout


@pytest.mark.parametrize("args", [["mkfs.tux3"], ["mkfs.tux3", "--nonsense", "x"], ["mkfs.tux3", "a", "1G", "c"],
                                  ["mkfs.tux3", "-b", "1000", "a"], ["mkfs.tux3", "-U", "xyz", "a"],
                                  ["mkfs.tux3", "-O", "nothing", "a"], ["mkfs.tux3", "-s", "12Q", "a"],
                                  ["mkfs.tux3", "-L", "x" * 65, "a"], ["mkfs.tux3", "/no/such/file"],
                                  ["fsck.tux3"], ["fsck.tux3", "a", "b"], ["fsck.tux3", "-l", "x", "a"],
                                  ["fsck.tux3", "--nonsense"],
                                  ["tux3"], ["tux3", "nonsense"], ["tux3", "show"], ["tux3", "show", "a", "nothing"],
                                  ["tux3", "show", "a", "inode"], ["tux3", "stat"], ["tux3", "graph"],
                                  ["tux3", "image", "a"], ["tux3", "help", "nonsense"],
                                  ["tux3", "path", "a"], ["tux3", "path", "a", "x"], ["tux3", "path", "a", "2", "3"],
                                  ["tux3", "undo"], ["tux3", "undo", "a"], ["tux3", "undo", "a", "b", "c"], ["tux3", "undo", "-x", "a", "b"]])
def test_wrong_use(run, args):
    done = run(*args, status=USAGE)
    assert done.stdout == "" and done.stderr


# ---- mkfs ----

def test_mkfs_makes_a_file(run, tmp_path, fsck):
    path = tmp_path / "new.img"
    done = run("mkfs.tux3", "-L", "my disk", "-U", "00112233-4455-6677-8899-aabbccddeeff", path, "32M")
    assert "32 MiB" in done.stdout and "my disk" in done.stdout and "00112233-4455-" in done.stdout
    assert os.path.getsize(path) == 32 << 20
    assert "clean" in fsck(path).stdout


@pytest.mark.parametrize("block_size", [4096, 8192, 16384, 32768, 65536])
def test_mkfs_block_sizes(run, build, tmp_path, fsck, block_size):
    path = tmp_path / "new.img"
    assert run("mkfs.tux3", "-q", "-b", block_size, "-O", "quota", path, "64M").stdout == ""
    fill(build, path)
    fsck(path, "--data")
    add_to_log(build, path)
    fsck(path, "--data")


def test_mkfs_features(run, build, tmp_path, fsck):
    path = tmp_path / "new.img"
    assert "quota" in run("mkfs.tux3", "-O", "quota,^data-csum", path, "32M").stdout
    volume = as_json(run("tux3", "show", "--json", path))[0]
    assert volume["quota"] and not volume["data-csum"]
    fill(build, path)
    fsck(path)
    kinds = {item["type"] for item in as_json(run("tux3", "show", "--json", path, "item", 1))}
    assert kinds == {"quota-user", "quota-group", "quota-project"}


def features(run, *words):
    return {row["name"]: row for row in as_json(run("tux3", "show", "features", *words, "--json"))}


def test_each_feature_is_switched(run, tmp_path):
    """What mkfs is told is what the volume has, for all that this build knows; unless told it has what is on by default."""
    path, known = tmp_path / "new.img", features(run)
    assert len(known) > 1 and all("set" not in row and row["what"] for row in known.values())
    run("mkfs.tux3", "-q", path, "32M")
    assert {name: row["set"] for name, row in features(run, path).items()} == {name: row["default"] for name, row in known.items()}
    for name in known:
        for word, on in ((name, True), ("^" + name, False)):
            run("mkfs.tux3", "-q", "-f", "-O", word, path)
            assert {n: row["set"] for n, row in features(run, path).items()} == \
                   {n: on if n == name else row["default"] for n, row in known.items()}
    assert as_json(run("tux3", "show", path, "features", "--json")) == list(features(run, path).values())
    assert "quota" in run("tux3", "show", "features", path).stdout


def test_features_of_a_mounted_volume(run, mkfs, mount, tmp_path):
    path = mkfs("32M", "-O", "quota,^data-csum")
    mounted = mount(path)
    told = features(run, mounted.path)
    assert told["quota"]["set"] and not told["data-csum"]["set"]
    assert "not the root" in sentence(run("tux3", "show", "features", tmp_path, status=1))
    mounted.unmount()
    assert features(run, path) == told


def test_features_that_are_not_known(run, filled):
    edit_anchors(filled, lambda data: struct.pack_into("<QQQ", data, 120, 1 << 63, 1 << 7, 1 | 1 << 40))
    done = run("tux3", "show", "features", filled, "--json")
    told = as_json(done)
    assert "newer version" in done.stderr
    assert [(row["kind"], row["bit"]) for row in told if row["name"] == "unknown"] == \
           [("compatible", 63), ("read-only", 7), ("incompatible", 40)]
    assert next(row for row in told if row["name"] == "data-csum")["set"]


# ---- profiles ----

PROFILES = ROOT / "share/profiles"


def test_profiles_are_those_of_the_kernels(run):
    """One for each series that the module is built for, and one that has what all of them have."""
    series = {s.name.split("-")[0] for s in runpy.run_path(str(ROOT / "vm/series.py"))["ALL"]}
    rows = {path.stem: dict(re.findall(r"^(\w+) = (.*)$", path.read_text(), re.M)) for path in PROFILES.glob("*.conf")}
    assert {name.split("-")[1] for name in rows if name != "all"} == series
    sets = {name: set(row["features"].split()) for name, row in rows.items()}
    assert sets["all"] == set.intersection(*(have for name, have in sets.items() if name != "all"))
    assert set.union(*sets.values()) <= set(features(run))
    assert all(row["about"] and row["format"] == "1" for row in rows.values())


def test_mkfs_with_each_profile(run, tmp_path, fsck):
    path = tmp_path / "new.img"
    for profile in PROFILES.glob("*.conf"):
        have = re.search(r"^features = (.*)$", profile.read_text(), re.M)[1].split()
        run("mkfs.tux3", "-q", "-f", "--profile", profile.stem, "-O", ",".join(have), path, "32M")
        assert all(features(run, path)[name]["set"] for name in have)
        fsck(path)


def test_profile_decides(run, tmp_path):
    path, profile = tmp_path / "new.img", tmp_path / "old.conf"
    profile.write_text("# a comment\nabout = old\n\n format=1 # the first\nfeatures = quota of-later\n")
    run("mkfs.tux3", "-q", "--profile", profile, path, "32M")
    assert not any(row["set"] for row in features(run, path).values())
    run("mkfs.tux3", "-q", "-f", "-O", "quota,^data-csum", "--profile", profile, path)
    assert features(run, path)["quota"]["set"]
    before = digest(path)
    for order in (["-O", "data-csum", "--profile", profile], ["--profile", profile, "-O", "data-csum"]):
        text = sentence(run("mkfs.tux3", "-f", *order, path, status=USAGE))
        assert "data-csum" in text and str(profile) in text
    # What was taken back is not asked for.
    assert digest(path) == before
    run("mkfs.tux3", "-q", "-f", "-O", "data-csum,^data-csum", "--profile", profile, path)
    assert not features(run, path)["data-csum"]["set"]


def test_bad_profiles(run, tmp_path):
    path, profile = tmp_path / "new.img", tmp_path / "bad.conf"
    text = sentence(run("mkfs.tux3", "--profile", "nix", path, "32M", status=USAGE))
    assert '"nix"' in text and all(p.stem in text for p in PROFILES.glob("*.conf"))
    assert "No such file" in sentence(run("mkfs.tux3", "--profile", profile, path, "32M", status=USAGE))
    for lines, why in (("features = quota\n", "which format"), ("format = 1\nhello\n", "line 2"), ("format = x\n", "line 1"),
                       ("format = 1\nfeature = quota\n", "line 2"), ("format = 0\n", "line 1")):
        profile.write_text(lines)
        assert why in sentence(run("mkfs.tux3", "--profile", profile, path, "32M", status=USAGE))
    for place in (f"{tmp_path}/", "/dev/zero"):
        assert "it is no file" in sentence(run("mkfs.tux3", "--profile", place, path, "32M", status=USAGE))
    sentence(run("mkfs.tux3", "--profile", "", path, "32M", status=USAGE))
    assert not path.exists()


def test_long_line_of_a_profile(run, tmp_path):
    profile = tmp_path / "long.conf"
    profile.write_text(f"# {'why ' * 1000}\nformat = 1\nfeatures = {'later ' * 500} quota\n")
    assert "features quota\n" in run("mkfs.tux3", "-O", "quota", "--profile", profile, tmp_path / "new.img", "32M").stdout


def test_mkfs_does_not_overwrite(run, mkfs, image):
    path = mkfs("32M")
    before = digest(path)
    assert "holds" in sentence(run("mkfs.tux3", path, status=1))
    assert digest(path) == before
    assert "holds" in sentence(run("mkfs.tux3", path, "64M", status=1))
    assert os.path.getsize(path) == 32 << 20
    run("mkfs.tux3", "-f", path)
    run("mkfs.tux3", "-f", path, "64M")
    assert os.path.getsize(path) == 64 << 20
    if not shutil.which("mkfs.ext4"):
        return
    other = image("32M")
    subprocess.run(["mkfs.ext4", "-q", other], check=True)
    before = digest(other)
    assert "ext4" in sentence(run("mkfs.tux3", other, status=1))
    assert digest(other) == before
    run("mkfs.tux3", "-f", other)


def test_programs_refuse_what_is_mounted(run, mounted):
    path = mounted.image
    size = os.path.getsize(path)
    assert "in use" in sentence(run("mkfs.tux3", "-f", path, size + (1 << 20), status=1))
    assert os.path.getsize(path) == size
    for args, status in ((["mkfs.tux3", "-f"], 1), (["fsck.tux3"], OPERATION), (["tux3", "show"], 1),
                         (["tux3", "stat"], 1), (["tux3", "graph"], 1)):
        assert "in use" in sentence(run(*args, path, status=status))
    assert "in use" in sentence(run("tux3", "image", path, f"{path}.copy", status=1))


def test_mkfs_bad_places(run, tmp_path):
    sentence(run("mkfs.tux3", tmp_path, status=1))
    sentence(run("mkfs.tux3", "/dev/null", status=1))
    small = tmp_path / "small"
    small.write_bytes(bytes(1 << 20))
    sentence(run("mkfs.tux3", small, status=1))
    assert small.read_bytes() == bytes(1 << 20)


def cpu_seconds():
    """What programs that have ended took, whoever else the machine worked for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_ten_terabytes(run, tmp_path):
    path = tmp_path / "huge.img"
    begun = cpu_seconds()
    run("mkfs.tux3", path, "10T")
    assert cpu_seconds() - begun < 1
    assert os.stat(path).st_blocks * 512 < 1 << 20
    begun = cpu_seconds()
    run("fsck.tux3", path)
    run("tux3", "show", path)
    run("tux3", "stat", path)
    assert cpu_seconds() - begun < 2


# ---- fsck ----

def test_fsck_clean(run, filled):
    before = digest(filled)
    assert "clean" in run("fsck.tux3", "--data", "-v", "-f", filled).stdout
    for option in ("-n", "-p", "-a", "-y", "-C"):
        run("fsck.tux3", option, filled)
    result = as_json(run("fsck.tux3", "--json", filled))
    assert result["problems"] == [] and result["summary"]["clean"]
    assert result["summary"]["files"] == 302 and result["summary"]["symlinks"] == 1
    assert digest(filled) == before


def test_fsck_replays_in_memory(run, logged):
    before = digest(logged)
    assert "replayed in memory" in run("fsck.tux3", logged).stdout
    assert as_json(run("fsck.tux3", "--json", logged))["summary"]["replayed_deltas"] > 0
    assert digest(logged) == before


def test_fsck_finds_damage(run, filled):
    node = as_json(run("tux3", "show", "--json", filled, "nodes"))[-1]
    edit(filled, node["addr"] * BLOCK + 1000, 1, lambda data: data.__setitem__(0, data[0] ^ 1))
    done = run("fsck.tux3", filled, status=PROBLEMS)
    assert "node-bad (101)" in done.stdout and "clean" not in done.stdout
    result = as_json(run("fsck.tux3", "--json", filled, status=PROBLEMS))
    assert result["problems"][0]["name"] == "node-bad" and result["problems"][0]["block"] == node["addr"]
    assert not result["summary"]["clean"] and result["summary"]["exit"] == PROBLEMS
    assert "fsck.tux3 -y repairs" in done.stdout
    # The other programs go on with what is left.
    assert "bad-node" in run("tux3", "show", filled, "tree", status=1).stdout
    assert "not_valid" in run("tux3", "show", filled, "block", node["addr"]).stdout
    assert "cannot be used" in run("tux3", "graph", filled, "-l", "100000").stdout
    run("tux3", "image", filled, f"{filled}.copy")
    run("fsck.tux3", f"{filled}.copy", status=PROBLEMS)


def test_fsck_data(run, filled):
    extents = [item for item in as_json(run("tux3", "show", "--json", filled, "path", "/big"))
               if item["type"] == "extent"]
    edit(filled, extents[0]["addr"] * BLOCK + 10, 1, lambda data: data.__setitem__(0, data[0] ^ 1))
    run("fsck.tux3", filled)
    assert "data-checksum" in run("fsck.tux3", "--data", filled, status=PROBLEMS).stdout


def test_fsck_limit(run, filled):
    # All anchors say that there are more inodes and blocks than there are: two problems.
    def change(data):
        used, inodes = struct.unpack_from("<QQ", data, 232)
        struct.pack_into("<QQ", data, 232, used + 1, inodes + 1)
    edit_anchors(filled, change)
    done = run("fsck.tux3", "-l", "1", filled, status=PROBLEMS)
    assert "2 problems found" in done.stdout and "1 more problems are not shown" in done.stdout


def test_fsck_without_anchors(run, filled):
    size = os.path.getsize(filled)
    for offset in (65536, 131072, size - 131072, size - 65536):
        edit(filled, offset + 200, 1, lambda data: data.__setitem__(0, data[0] ^ 1))
    done = run("fsck.tux3", filled, status=PROBLEMS)
    assert "clean" not in done.stdout and "anchor" in done.stderr
    assert "anchor" in run("tux3", "show", filled, "anchors", status=1).stderr


def test_not_a_volume(run, image, tmp_path):
    zeros = image("16M")
    for program in (["fsck.tux3"], ["tux3", "show"], ["tux3", "stat"], ["tux3", "graph"]):
        status = OPERATION if program[0] == "fsck.tux3" else 1
        assert "no Tux3 volume" in sentence(run(*program, zeros, status=status))
        assert "does not exist" in sentence(run(*program, tmp_path / "none", status=status))
    assert digest(zeros) == digest(image("16M"))
    sentence(run("fsck.tux3", tmp_path, status=OPERATION))


def test_newer_format(run, filled):
    edit_anchors(filled, lambda data: struct.pack_into("<I", data, 12, 99))
    assert "newer" in sentence(run("fsck.tux3", filled, status=OPERATION))
    assert "newer" in sentence(run("tux3", "show", filled, status=1))


def test_unknown_feature(run, filled):
    edit_anchors(filled, lambda data: struct.pack_into("<Q", data, 136, 1 | 1 << 40))
    assert "newer version" in sentence(run("fsck.tux3", filled, status=OPERATION))


def test_truncated_image(run, filled):
    os.truncate(filled, 40 << 20)
    text = run("fsck.tux3", filled, status=PROBLEMS).stderr
    assert str(64 << 20) in text and str(40 << 20) in text


def test_fsck_canceled(build, filled):
    # The signal comes before anything is opened: a fifo as stdout keeps it waiting afterwards.
    process = subprocess.Popen([build / "fsck.tux3", "-v", "--data", "-f", filled], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    process.send_signal(signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    process.communicate(timeout=60)
    assert process.returncode in (32, 0, -signal.SIGINT)	# canceled, or faster than us


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("mode", ["-n", "-y"])
def test_fsck_canceled_as_json(build, run, filled, damaged, mode):
    """What it has found until then is told, as JSON that can be read, and that it is not all; nothing is repaired."""
    if not shutil.which("strace"):
        pytest.skip("no strace here")
    if damaged:
        edit_anchors(filled, lambda data: struct.pack_into("<Q", data, 240, struct.unpack_from("<Q", data, 240)[0] + 1))
    before, ends = digest(filled), set()
    for number in range(1, 300, 7):
        done = subprocess.run(["strace", "-f", "-o", os.devnull, "-P", filled, "-e", "trace=pread64", "-e",
                               f"inject=pread64:signal=INT:when={number}", build / "fsck.tux3", mode, "--json", "--data", filled], capture_output=True, text=True)
        if "strace: " in done.stderr:
            pytest.skip("strace may not trace here")
        if not done.returncode & 32:
            break
        report = json.loads(done.stdout)
        assert report["summary"]["interrupted"] and not report["summary"]["clean"] and "interrupted" in done.stderr
        assert report["summary"]["exit"] == done.returncode == 32 | 4 * bool(report["problems"]), done
        assert digest(filled) == before
        ends.add(done.returncode)
    assert ends == ({32, 36} if damaged else {32})
    assert not as_json(run("fsck.tux3", "--json", filled, status=None))["summary"]["interrupted"]


def test_fsck_canceled_between(build, filled, tmp_path):
    """After the check, and before the repair: who is told that nothing was changed can rely on it."""
    if not shutil.which("strace"):
        pytest.skip("no strace here")
    edit_anchors(filled, lambda data: struct.pack_into("<Q", data, 240, struct.unpack_from("<Q", data, 240)[0] + 1))
    path, before, told = tmp_path / "x.img", digest(filled), 0
    for number in range(1, 20):
        shutil.copy(filled, path)
        done = subprocess.run(["strace", "-f", "-o", os.devnull, "-P", path, "-e", "trace=close", "-e",
                               f"inject=close:signal=INT:when={number}", build / "fsck.tux3", "-y", "--json", path], capture_output=True, text=True)
        if "strace: " in done.stderr:
            pytest.skip("strace may not trace here")
        if "nothing was changed" in done.stderr:
            told += 1
            assert digest(path) == before and done.returncode & 32, done
    assert told


# ---- show ----

def test_show_objects(run, logged):
    for args in (["volume"], ["anchors"], ["log"], ["tree"], ["nodes"], ["inode", 2], ["path", "/"], ["free"], ["space"],
                 ["path", "/secret-directory/plan.txt"], ["item", 2, "dirent"], ["block", 0], ["block", 16],
                 ["block", 48], ["block", 60]):
        text = run("tux3", "show", logged, *args).stdout
        objects = as_json(run("tux3", "show", logged, *args, "--json"))
        assert text and objects and isinstance(objects, list), args


def test_show_space(run, filled):
    kept, *rows = as_json(run("tux3", "show", filled, "space", "--json"))
    assert kept["blocks"] > kept["free"] > kept["available"] > 0
    # What an ordinary write does not get, but for what the tree itself will take: free blocks, two of them chosen for the log.
    parts = sum(kept[name] for name in ("standing", "keeps", "frees", "slice", "log", "aside", "ordinary")) + 2
    assert kept["free"] - kept["available"] >= parts
    create = next(row for row in rows if row["operation"].startswith("create"))
    assert create["items"] == 4 and create["blocks"] <= create["blocks_when_full"]


def test_show_what_is_not_there(run, filled):
    assert "There is no inode 99999." in run("tux3", "show", filled, "inode", 99999, status=1).stderr
    assert "has no such item" in run("tux3", "show", filled, "item", 2, "xattr", status=1).stderr
    assert "is empty" in run("tux3", "show", "", status=1).stderr
    assert "is empty" in run("mkfs.tux3", "", "64M", status=16).stderr


def test_show_content(run, logged):
    assert "attack at dawn" in run("tux3", "show", logged, "path", "/secret-directory/plan.txt").stdout
    volume = as_json(run("tux3", "show", logged, "--json"))[0]
    assert volume["label"] == "label" and volume["newest_delta"] > volume["anchor_delta"]
    log = as_json(run("tux3", "show", logged, "log", "--json"))
    records = [record for commit in log for record in commit["records"]]
    assert any(record["record"] == "dirent-delete" and record["entries"][0]["name"] == "file7" for record in records)
    block = log[0]["blocks"][0]
    assert {"used_by": "log"} in as_json(run("tux3", "show", logged, "block", block, "--json"))
    extent = next(item for item in as_json(run("tux3", "show", logged, "path", "/big", "--json"))
                  if item["type"] == "extent")
    owners = as_json(run("tux3", "show", logged, "block", extent["addr"] + 3, "--json"))
    assert {"used_by": "file", "inode": extent["ino"], "file_block": 3} in owners


def number_of(run, image, path):
    return as_json(run("tux3", "show", image, "path", path, "--json"))[0]["ino"]


def test_path(run, build, filled):
    volume = Volume(build, filled)
    volume.mkdir("/a")
    volume.mkdir("/a/b")
    volume.write("/a/b/two\nlines", b"")
    volume.write("/a/b/one", b"")
    for i in range(50):
        volume.link("/a/b/one", "/secret-directory", f"other{i}")
    deep = "".join(f"/{i}" for i in range(1000))
    volume.write(deep, b"", parents=True)
    volume.sync()
    volume.abandon()		# what is only in the log counts

    def paths(path):
        return run("tux3", "path", filled, number_of(run, filled, path)).stdout

    assert paths("/") == "/\n"
    assert paths("/a/b") == "/a/b\n"
    assert paths("/a/b/two\nlines") == '"/a/b/two\\x0alines"\n'
    assert sorted(paths("/a/b/one").split()) == sorted(["/a/b/one", *(f"/secret-directory/other{i}" for i in range(50))])
    assert paths(deep) == f"{deep}\n"
    number = number_of(run, filled, "/a/b/two\nlines")
    assert as_json(run("tux3", "path", "--json", filled, number)) == [{"inode": number, "path": "/a/b/two\nlines"}]
    assert "There is no inode 99999" in sentence(run("tux3", "path", filled, 99999, status=1))
    assert "has no name" in sentence(run("tux3", "path", filled, 1, status=1))


def test_path_of_a_mounted_volume(run, mounted):
    os.makedirs(mounted / "a/b")
    with open(mounted / "a/b/file", "w", encoding="ascii"):
        pass
    number = os.stat(mounted / "a/b/file").st_ino
    assert run("tux3", "path", mounted.path, number).stdout == "/a/b/file\n"
    os.link(mounted / "a/b/file", mounted / "second")
    os.rename(mounted / "a/b", mounted / "c")
    assert sorted(run("tux3", "path", mounted / "c", number).stdout.split()) == ["/c/file", "/second"]
    assert run("tux3", "path", mounted.path, 2).stdout == "/\n"
    found = as_json(run("tux3", "path", "--json", mounted.path, number))
    assert sorted(found, key=str) == [{"inode": number, "path": "/c/file"}, {"inode": number, "path": "/second"}]
    assert "There is no inode 99999" in sentence(run("tux3", "path", mounted.path, 99999, status=1))
    assert "not on a mounted Tux3 volume" in sentence(run("tux3", "path", "/proc", 1, status=1))


def test_long_path_of_a_mounted_volume(run, mounted, volume):
    """There is no room for it in the answer; nothing is wrong with it, and of the image it is told."""
    at = os.open(mounted.path, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(20):
        os.mkdir("d" * 250, dir_fd=at)
        below = os.open("d" * 250, os.O_RDONLY | os.O_DIRECTORY, dir_fd=at)
        os.close(at)
        at = below
    number = os.fstat(at).st_ino
    os.close(at)
    assert "longer than 4095 bytes, and can be told once the volume is not mounted" in sentence(
        run("tux3", "path", mounted.path, number, status=1))
    mounted.unmount()
    assert run("tux3", "path", volume, number).stdout == f"/{'d' * 250}" * 20 + "\n"


def listed(run, where):
    return {one["inode"]: one for one in as_json(run("tux3", "ls-inodes", "--json", where))}


def test_ls_inodes(run, build, filled):
    volume = Volume(build, filled)
    volume.write("/new", b"some text")
    number = volume.number("/new")
    volume.abandon()
    image = listed(run, filled)
    assert number not in image and 2 in image
    volume = Volume(build, filled)
    volume.write("/new", b"some text")
    number = volume.number("/new")
    volume.close()
    image = listed(run, filled)
    assert image[number]["size"] == 9 and image[number]["links"] == 1 and image[number]["mode"].startswith("0100")
    assert len(image) == as_json(run("tux3", "stat", filled, "--json"))["inodes"]["value"]
    lines = run("tux3", "ls-inodes", filled).stdout.splitlines()
    assert [int(line.split()[0]) for line in lines] == sorted(image)
    assert any(line.split()[1][0] == "d" for line in lines)
    sentence(run("tux3", "ls-inodes", filled, "x", status=USAGE))


def test_ls_inodes_tells_large_device_numbers(run, mounted):
    """XFS's structure has 18 bits for the minor one."""
    numbers = {os.makedev(1, 3), os.makedev(5, 1 << 18), os.makedev(4095, (1 << 20) - 1)}
    for number in numbers:
        os.mknod(mounted / str(number), stat.S_IFCHR | 0o600, number)
    found = [line for line in listed(run, mounted.path).values() if line["mode"].startswith("02")]
    assert {os.makedev(line["rdev_major"], line["rdev_minor"]) for line in found} == numbers


def test_ls_inodes_of_a_mounted_volume(run, mounted):
    os.makedirs(mounted / "a/b")
    for number in range(150):
        with open(mounted / f"a/b/f{number}", "w", encoding="ascii"):
            pass
    found = listed(run, mounted.path)
    paths = [mounted / "a", mounted / "a/b", *(mounted / f"a/b/f{number}" for number in range(150))]
    for path in paths:
        st = os.stat(path)
        assert (found[st.st_ino]["mode"], found[st.st_ino]["mtime"]) == (f"0{st.st_mode:o}", int(st.st_mtime))
    assert "not on a mounted Tux3 volume" in sentence(run("tux3", "ls-inodes", "/proc", status=1))


def change_parent(image, old, name, new):
    """Directory `name` says that it is in another one."""
    found = struct.pack("<QB", old, len(name)) + name
    with open(image, "rb") as f:
        data = f.read()
    places = [at for at in range(0, len(data), BLOCK) if found in data[at:at + BLOCK]]
    assert places

    def change(block):
        at = block.index(found)
        block[at:at + 8] = struct.pack("<Q", new)
        seal(block, at=4)
    for at in places:
        edit(image, at, BLOCK, change)


def test_path_of_a_damaged_volume(run, build, filled):
    volume = Volume(build, filled)
    volume.mkdir("/upper")
    volume.mkdir("/upper/unlikely")
    volume.write("/upper/unlikely/file", b"")
    upper, unlikely, file = (volume.number(path) for path in ("/upper", "/upper/unlikely", "/upper/unlikely/file"))
    volume.close()
    change_parent(filled, upper, b"unlikely", 99999)
    said = sentence(run("tux3", "path", filled, file, status=1))
    assert "/unlikely/file" in said and "inode 99999" in said and "no parent pointer" in said, said
    change_parent(filled, 99999, b"unlikely", unlikely)
    assert "round in a circle" in sentence(run("tux3", "path", filled, file, status=1))


def test_path_tells_names_of_damaged_volumes_without_control_characters(run, build, filled):
    volume = Volume(build, filled)
    volume.mkdir("/upper")
    volume.mkdir("/upper/unlikely")
    volume.write("/upper/unlikely/\x1b[2Jfile", b"")
    upper, file = (volume.number(path) for path in ("/upper", "/upper/unlikely/\x1b[2Jfile"))
    volume.close()
    change_parent(filled, upper, b"unlikely", 99999)
    said = sentence(run("tux3", "path", filled, file, status=1))
    assert "\x1b" not in said and '"/unlikely/\\x1b[2Jfile"' in said, said


def test_path_of_an_orphan(run, build, filled):
    volume = Volume(build, filled)
    volume.write("/orphan", b"")
    volume.sync()
    number = volume.number("/orphan")
    node = volume.node("/orphan")
    volume.unlink("/orphan")
    volume.sync()
    volume.abandon()
    assert node and f"Inode {number} has no name" in sentence(run("tux3", "path", filled, number, status=1))


def test_show_missing(run, filled):
    assert "no such name" in sentence(run("tux3", "show", filled, "path", "/none", status=1))
    assert "There is no inode 99999" in sentence(run("tux3", "show", filled, "inode", 99999, status=1))
    sentence(run("tux3", "show", filled, "block", 1 << 40, status=1))
    sentence(run("tux3", "show", filled, "inode", "x", status=USAGE))
    sentence(run("tux3", "show", filled, "item", 2, "nothing", status=USAGE))


# ---- stat, graph, image ----

def test_stat_image(run, logged):
    stat = as_json(run("tux3", "stat", logged, "--json"))
    assert stat["inodes"]["value"] == 305 and stat["log_length"]["value"] > 0
    assert run("tux3", "stat", logged, "block_size").stdout.split()[:3] == ["block_size", "4096", "bytes"]
    assert '"nonsense"' in sentence(run("tux3", "stat", logged, "blocks", "nonsense", "blocks", status=1))
    assert len(run("tux3", "stat", logged, "blocks", "blocks").stdout.splitlines()) == 1


def test_stat_mounted(run, mounted):
    with open(mounted / "file", "w") as f:
        f.write("x")
    stat = as_json(run("tux3", "stat", mounted.path, "--json"))
    assert stat["ops"]["value"] > 0 and stat["blocks"]["value"] > 0
    os.mkdir(mounted / "dir")
    assert "not the root" in sentence(run("tux3", "stat", mounted / "dir", status=1))
    sentence(run("tux3", "stat", "/proc", status=1))


def test_stat_counts_what_is_used_as_df_does(run, mount, volume):
    """Also in tree nodes that are not on the disk yet."""
    def space(path):
        stat = as_json(run("tux3", "stat", path, "--json"))
        assert stat["used_blocks"]["value"] + stat["free_blocks"]["value"] == stat["blocks"]["value"]
        return stat["used_blocks"]["value"]

    m = mount(volume, "age=1000")
    empty = space(m.path)
    for n in range(2000):
        open(m / f"file{n}", "w").close()
    subprocess.run(["sync", m.path], check=True)
    assert as_json(run("tux3", "stat", m.path, "--json"))["node_blocks"]["value"] == 0
    df = os.statvfs(m.path)
    used = space(m.path)
    assert used == df.f_blocks - df.f_bfree > empty + 50
    m.unmount()
    assert space(volume) == used


def text_beside_boxes(svg):
    """Texts of a picture of dot that are not within a box, at six tenths of the font's size for each character."""
    spaces, beside = "{http://www.w3.org/2000/svg}", []
    for node in xml.etree.ElementTree.parse(svg).getroot().iter(f"{spaces}g"):
        if node.get("class") != "node":
            continue
        boxes = []
        for polygon in node.iter(f"{spaces}polygon"):
            points = [tuple(map(float, point.split(","))) for point in polygon.get("points").split()]
            boxes.append((min(p[0] for p in points), max(p[0] for p in points),
                          min(p[1] for p in points), max(p[1] for p in points)))
        for text in node.iter(f"{spaces}text"):
            assert "ourier" in text.get("font-family"), text.attrib
            width = 0.61 * float(text.get("font-size")) * len(text.text)
            left = float(text.get("x")) - {"start": 0, "middle": width / 2, "end": width}[text.get("text-anchor")]
            if not any(x0 <= left and left + width <= x1 and y0 <= float(text.get("y")) <= y1
                       for x0, x1, y0, y1 in boxes):
                beside.append(text.text)
    return beside


def test_graph(run, logged, tmp_path):
    text = run("tux3", "graph", logged, "-l", "100000").stdout
    assert text.startswith("digraph tux3 {") and text.endswith("}\n") and "commit of delta" in text
    cut = run("tux3", "graph", logged, "-l", "5")
    assert "not drawn" in cut.stdout and "after 5" in sentence(cut)
    if not shutil.which("dot"):
        assert "graphviz" in run("tux3", "graph", logged, "--svg", status=1).stderr
        return
    svg = tmp_path / "out.svg"
    for limit in ("1000000", "100", "7", "1", "0"):
        done = run("tux3", "graph", logged, "--svg", "-l", limit, "-o", svg)
        assert (limit == "1000000") == (done.stderr == ""), done.stderr
        if done.stderr:
            assert f"after {limit} " in sentence(done)
        assert text_beside_boxes(svg) == []


def test_graph_leaves_no_half_a_file(run, build, logged, tmp_path):
    """Neither when dot is not there nor when there is no volume."""
    svg = tmp_path / "out.svg"
    done = subprocess.run([str(build / "tux3"), "graph", str(logged), "-l", "100000", "--svg", "-o", str(svg)],
                          capture_output=True, text=True, env={**os.environ, "PATH": str(tmp_path)})
    assert done.returncode == 1 and "graphviz" in sentence(done) and not svg.exists()
    svg.write_text("older")
    run("tux3", "graph", tmp_path / "none", "-o", svg, status=1)
    assert svg.read_text() == "older"


def test_image(run, logged, tmp_path, fsck):
    copy = tmp_path / "copy.img"
    before = digest(logged)
    run("tux3", "image", logged, copy)
    assert digest(logged) == before
    assert os.stat(copy).st_blocks * 512 < 2 << 20 and os.path.getsize(copy) == os.path.getsize(logged)
    keep = ("inodes", "names", "items", "data_blocks", "unwritten_blocks", "used_blocks", "replayed_deltas", "delta")
    one, two = (as_json(fsck(path, "--json"))["summary"] for path in (logged, copy))
    assert [one[key] for key in keep] == [two[key] for key in keep]
    assert "there already" in sentence(run("tux3", "image", logged, copy, status=1))
    run("tux3", "image", "-f", logged, copy)
    sentence(run("tux3", "image", logged, logged, status=USAGE))
    # The data stayed behind.
    run("fsck.tux3", "--data", copy, status=PROBLEMS)


def test_image_has_what_was_synced_last(run, mkfs, mount, tmp_path, fsck):
    """What an fsync wrote ahead of its delta is metadata, too: but for the data, near or far, and the copy has none of that."""
    path, copy = mkfs("200M"), tmp_path / "copy.img"
    m = mount(path, "age=3600,nowriteback,fsync=ahead")
    synced(m / "first", b"1" * 5000)
    subprocess.run(["sync", m.path], check=True)	# there are areas from this commit on
    os.mkdir(m / "dir")
    for name, size in (("dir/small", 10), ("dir/near", 20000), ("far", 1 << 20), ("dir/last", 9000)):
        synced(m / name, b"secret".ljust(8) * (size // 8))
    m.kill()
    run("tux3", "image", path, copy)
    assert b"secret" not in copy.read_bytes()
    keep = ("inodes", "names", "items", "data_blocks", "unwritten_blocks", "used_blocks", "replayed_deltas", "delta")
    one, two = (as_json(fsck(image, "--json"))["summary"] for image in (path, copy))
    assert one["inodes"] >= 7 and [one[key] for key in keep] == [two[key] for key in keep]
    for name in ("dir/small", "far", "dir/last"):
        one, two = (run("tux3", "show", image, "path", f"/{name}").stdout for image in (path, copy))
        assert one == two and "ino" in one
    mount(copy).unmount()
    assert as_json(fsck(copy, "--json"))["summary"]["inodes"] >= 7


@pytest.mark.parametrize("options", ([], ["--scramble"]))
def test_image_is_whole_or_not_there(build, logged, tmp_path, options):
    """The disk is full; what was there before stays."""
    copy = tmp_path / "copies" / "copy.img"
    copy.parent.mkdir()

    def image(*words):
        return subprocess.run([str(build / "tux3"), "image", str(logged), str(copy), *options, *words], capture_output=True,
                              text=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)))
    done = image()
    assert done.returncode == 1 and str(copy) in sentence(done) and not list(copy.parent.iterdir())
    copy.write_text("older")
    assert image("-f").returncode == 1
    assert list(copy.parent.iterdir()) == [copy] and copy.read_text() == "older"


def test_image_over_what_a_link_leads_to(run, logged, tmp_path):
    copy, link = tmp_path / "copy.img", tmp_path / "link"
    copy.write_text("older")
    link.symlink_to(copy.name)
    assert "there already" in sentence(run("tux3", "image", logged, link, status=1))
    run("tux3", "image", "-f", logged, link)
    assert link.is_symlink() and os.path.getsize(copy) == os.path.getsize(logged)


def test_image_scrambled_of_nothing(run, filled, tmp_path):
    """The root of the tree is gone, and all with it."""
    anchor = next(a["anchor"] for a in as_json(run("tux3", "show", "--json", filled, "anchors")) if a["current"])
    with open(filled, "r+b") as f:
        f.seek(anchor["root_addr"] * 4096 + 100)
        f.write(b"\xee" * 100)
    copy = tmp_path / "copy.img"
    assert "can be read" in sentence(run("tux3", "image", "--scramble", filled, copy, status=1))
    assert not copy.exists()


def test_image_scrambled(run, logged, tmp_path, fsck):
    copy = tmp_path / "copy.img"
    run("tux3", "image", "--scramble", logged, copy)
    keep = ("inodes", "files", "directories", "names", "xattrs", "extents", "data_blocks", "unwritten_blocks")
    one, two = (as_json(fsck(path, "--json"))["summary"] for path in (logged, copy))
    assert [one[key] for key in keep] == [two[key] for key in keep]
    data = copy.read_bytes()
    for secret in (b"secret-", b"plan.txt", b"attack", b"file29", b"label", b"only in"):
        assert secret not in data
    # Lengths, sizes and times are those of the original; a symlink still leads to its file.
    items = as_json(run("tux3", "show", copy, "path", "/", "--json"))
    names = sorted(len(entry["name"]) for item in items if item["type"] == "dirent" for entry in item["entries"])
    assert names == sorted(len(name) for name in ("secret-directory", "big", "link", "logged"))
    tree = as_json(run("tux3", "show", copy, "tree", "--json"))
    link = next(item["ino"] for item in tree if item.get("mode", "").startswith("0120"))
    target = next(item["data"] for item in tree if item.get("ino") == link and item["type"] == "inline")
    run("tux3", "show", copy, "path", f"/{target}")	# it may begin with "-"
