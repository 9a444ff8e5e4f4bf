# SPDX-License-Identifier: GPL-2.0-or-later
"""The golden images (tests/golden): what earlier builds wrote, this one reads, checks, replays and goes on with."""
import contextlib
import json
import re
import shutil
import sys

import pytest
import format_reader
import repair_loop
from conftest import ROOT
from tools_helpers import edit_anchors

sys.path.insert(0, str(ROOT / "tests/golden"))
import golden  # noqa: E402

GOLDEN = sorted(ROOT.glob("tests/golden/[0-9]*/*.xz"))
WHOLE = [path for path in GOLDEN if path.stem != "damaged"]
DAMAGED = [path for path in GOLDEN if path.stem == "damaged"]
LARGEST = 40 << 10
# What stays when it is repaired: content that is lost reads as an error.
STAYS = {"data-checksum", "data-read"}


@contextlib.contextmanager
def readable(path):
    """What goes wrong inside is told in a sentence about the format."""
    try:
        yield
    except (AssertionError, format_reader.FormatError, repair_loop.Failure) as e:
        pytest.fail(f"This build cannot read what version {path.parent.name} of the format has in {path.relative_to(ROOT)}: {e}\n"
                    "If that is meant, doc/FORMAT.md (\"Changes\") and the commit say so, and tests/golden/make_golden.py makes new ones.",
                    pytrace=False)


def must_be(seen, must, what):
    difference = golden.first_difference(seen, must)
    assert difference is None, f"{what}: {difference}"


def expectation(path):
    return json.loads(path.with_suffix(".json").read_text())


def ids(path):
    return f"{path.parent.name}-{path.stem}"


def libtux3_sees(image, must, what, **options):
    """The volume stays open no longer than that."""
    tree = golden.View(image, **options)
    seen = tree.picture()
    tree.close()
    must_be(seen, golden.without_stored(must["tree"]), what)


def go_on(image, must):
    """As somebody does who has had the volume for long."""
    tree = golden.View(image)
    tree.mkdir("/later")
    contents = {f"/later/{n}": bytes([n]) * size for n, size in enumerate((0, 1, 100, 5000, 100000, 300000))}
    for path, data in contents.items():
        tree.write(path, data)
        tree.xattr(path, "user.a", data[:65536])
    tree.link("/dir/blocks", "/later", "link")
    tree.unlink("/dir/many extents")
    tree.unlink("/dir/preallocated")
    tree.write("/dir/swap" if "dir/swap" in must["tree"] else "/dir/sparse", b"x" * 70000)
    assert tree.lib.tux3_path_rename(tree.handle, None, b"/many", b"/later/many", 0) == 0
    tree.sync()
    seen = tree.picture()
    tree.close()
    for path, data in contents.items():
        assert seen[path[1:]]["content"] == golden.digest(data), path
    kept = {path: what for path, what in must["tree"].items() if what["mode"] & 0o170000 == 0o120000}
    must_be({path: seen.get(path) for path in kept}, kept, "symlinks after writing")


def one_golden(build, run, path, image):
    """All that is asked of an image without damage."""
    must = expectation(path)
    golden.unpack(path, image)
    assert golden.problems(build, image) == must["problems"], "fsck.tux3"
    libtux3_sees(image, must, "read only", read_only=True)
    shown = json.loads(run("tux3", "show", image, "--json").stdout)[0]
    assert {name: shown[name] for name in ("label", "block_size")} == {name: must[name] for name in ("label", "block_size")}
    assert shown["newest_delta"] == must["delta"]
    assert golden.records(build, image) == must["records"], "the records of the log"

    libtux3_sees(image, must, "replayed, and opened for writing")
    assert golden.problems(build, image) == must["problems"], "fsck.tux3 after that"
    read = golden.picture_read(format_reader.Volume(image))
    must_be(read, must["tree"], "written again, by FORMAT.md")
    go_on(image, must)
    assert golden.problems(build, image) == must["problems"], "fsck.tux3 after writing"


@pytest.mark.parametrize("path", WHOLE, ids=ids)
def test_image(path, build, run, tmp_path):
    with readable(path):
        one_golden(build, run, path, tmp_path / "golden.img")


@pytest.mark.parametrize("path", WHOLE, ids=ids)
def test_by_the_document(path, tmp_path):
    """The reader that knows only FORMAT.md sees the same."""
    must, image = expectation(path), tmp_path / "golden.img"
    golden.unpack(path, image)
    with readable(path):
        volume = format_reader.Volume(image)
        must_be(golden.picture_read(volume), must["tree"], "by FORMAT.md")
        assert (volume.delta, len(volume.commits), bool(volume.torn), len(volume.intents)) == \
            tuple(must[name] for name in ("delta", "commits", "torn", "intents"))
        assert volume.skips == must.get("skips", volume.skips)
        assert golden.quotas(volume) == must["quota"]
        assert golden.orphans(volume) == must["orphans"]
        assert golden.chains(volume) == must["chains"]


@pytest.mark.parametrize("path", DAMAGED, ids=ids)
def test_damaged(path, build, tmp_path):
    """The same problems are found, and repaired."""
    packed, verdicts = golden.Packed(path), expectation(path)
    assert packed.images.keys() == verdicts.keys()
    with readable(path):
        for name, must in verdicts.items():
            image = tmp_path / f"{name}.img"
            packed.unpack(name, image)
            assert golden.problems(build, image) == must, f"fsck.tux3 of {name}"
            summary = golden.repair(build, image)
            left = set(golden.problems(build, image))
            may_stay = STAYS if summary["lost"] or STAYS & set(must) else set()
            assert left <= may_stay, f"{name} has {left} after fsck.tux3 -y"
            assert bool(summary["written"]) == bool(set(must) - STAYS), f"fsck.tux3 -y of {name}"
            image.unlink()


# ---- is that enough? ----

def newest():
    return [path for path in GOLDEN if path.parent == GOLDEN[-1].parent]


def table(name):
    body = re.search(rf"#define {name}\(X\) \\\n(.*?)\n\n", (ROOT / "core/format/format.h").read_text(), re.S)[1]
    return [(int(number), word) for number, word in re.findall(r'X\((\d+),\s*\w+,\s*"([\w-]+)"', body)]


def test_everything_occurs():
    """Each item type, record type, kind of extent and block size of interest; each problem has a damaged image."""
    musts = [expectation(path) for path in newest() if path.stem != "damaged"]
    assert {kind for must in musts for kind in must["items"]} == {number for number, _ in table("TUX3_ITEMS")}
    for block_size in (4096, 65536):
        logged = [must for must in musts if must["block_size"] == block_size]
        assert {kind for must in logged for kind in must["records"]} == {name for _, name in table("TUX3_RECORDS")}, block_size
        assert any(must["intents"] > 1 for must in logged)
        assert {kind for must in logged for kind, _ in must["orphans"]} == {1, 2}
    assert {flags for must in musts for flags in must["extent_flags"]} == {0, 1, 2, 4}
    assert any(must.get("skips") for must in musts)		# after a cut of the log
    assert any(must["torn"] for must in musts) and any(must["label"] for must in musts) and any(must["quota"] for must in musts)
    problems = re.findall(r'X\((\d+), \w+, "([\w-]+)", ', (ROOT / "core/check/check.h").read_text())
    found = {name for path in newest() if path.stem == "damaged" for must in expectation(path).values() for name in must}
    only_devices = {"data-read"}
    assert len(problems) > 70 and {name for _, name in problems} - found == only_devices


def test_files():
    """Each image has its expectation, and is small."""
    assert WHOLE and DAMAGED
    for path in GOLDEN:
        assert path.with_suffix(".json").exists() and path.stat().st_size < LARGEST, path
    assert {path.with_suffix("") for path in GOLDEN} == {path.with_suffix("") for path in ROOT.glob("tests/golden/[0-9]*/*.json")}


# ---- would it be seen? ----

def test_a_wrong_content_is_seen(build, run, tmp_path):
    path = next(path for path in WHOLE if path.stem == "tree")
    copy = tmp_path / "1" / path.name
    copy.parent.mkdir()
    shutil.copyfile(path, copy)
    must = expectation(path)
    must["tree"]["dir/inline"]["content"] = golden.digest(b"other")
    copy.with_suffix(".json").write_text(json.dumps(must))
    with pytest.raises(AssertionError, match="content of 'dir/inline' is"):
        one_golden(build, run, copy, tmp_path / "golden.img")


def test_what_cannot_be_read_is_told_in_a_sentence(tmp_path):
    path = next(path for path in WHOLE if path.stem == "tree")
    image = tmp_path / "golden.img"
    golden.unpack(path, image)
    edit_anchors(image, lambda anchor: anchor.__setitem__(12, 2))
    with pytest.raises(pytest.fail.Exception, match="cannot read what version 1 of the format has in tests/golden/1/tree.xz.*version 2"):
        with readable(path):
            golden.View(image)
