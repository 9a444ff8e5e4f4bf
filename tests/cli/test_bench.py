# SPDX-License-Identifier: GPL-2.0-or-later
"""What benchmarks and tests/run do around what they run: what is missing, results of half a run, ignored signals."""
import json
import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench"))

import common
import repair


@pytest.fixture
def installs(monkeypatch):
    """What was asked to be installed, which never is."""
    asked = []
    monkeypatch.setattr(common, "run", lambda command, **_: asked.append(Path(command[0]).name) or "")
    return asked


def test_what_is_missing_is_told_before_anything_runs(installs, tmp_path):
    common.need(ours=["mkfs.tux3"], programs=["sh"], files=["/etc/passwd"], modules=["json"])
    assert installs == []
    with pytest.raises(RuntimeError, match="no-such-program, /no/such/file, Python's no_such_module: not installed"):
        common.need(programs=["sh", "no-such-program"], files=["/no/such/file"], modules=["no_such_module"])
    assert installs == (["deps.sh"] if os.geteuid() == 0 else [])
    with pytest.raises(RuntimeError, match="run make first"):
        common.need(ours=["no-such-tool"])


def test_benchmark_stops_at_once_without_its_programs(tmp_path):
    """With nothing in PATH but what Python itself needs: no file, no mount, no measurement."""
    done = subprocess.run(["/usr/bin/python3", "-c", f"""
import sys
sys.argv = ["bench/run", "fuse", "--quick", "--no-io-uring", "--dir", "{tmp_path}/bench", "--json", "{tmp_path}/out.json"]
sys.path.insert(0, "{ROOT}/bench")
import common
import repair
common.SBIN = "/nonexistent"
common.run = lambda command, **_: ""
import runpy
runpy.run_path("{ROOT}/bench/run", run_name="__main__")
"""], capture_output=True, text=True)
    assert done.returncode == 2 and "fs_mark" in done.stderr and "deps.sh" in done.stderr, done
    assert os.listdir(tmp_path) == []


def test_each_benchmark_says_what_it_is():
    names = runpy.run_path(f"{ROOT}/bench/run")["BENCHMARKS"]
    text = subprocess.run([ROOT / "bench/run", "--help"], capture_output=True, text=True, check=True).stdout
    assert all(f"\n    {name}" in text for name in names)
    assert "0.1 %, 1 % and 5 %" in text
    for name in names:
        assert "--quick" in subprocess.run([ROOT / "bench/run", name, "--help"], capture_output=True, text=True, check=True).stdout


def test_results_of_half_a_run_are_kept(tmp_path):
    path, rows = tmp_path / "new" / "out.json", []
    with pytest.raises(RuntimeError):
        with common.kept(path, {"setting": 1}, lambda: rows):
            rows.append(common.Row("first", "s", "lower"))
            rows[0].add("tux3", 2.0)
            raise RuntimeError("the second cannot be measured")
    result = json.loads(path.read_text())
    assert result["rows"][0]["results"] == {"tux3": 2.0} and "second" in result["incomplete"]
    assert result["config"] == {"setting": 1}


def test_ignored_signals_are_not_inherited(monkeypatch):
    """As in the background of a shell: what is started there can be interrupted all the same."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        interrupted = ["sh", "-c", "kill -INT $$; echo alive"]
        assert subprocess.run(interrupted, capture_output=True).stdout == b"alive\n"
        runpy.run_path(str(ROOT / "tests/run"))["reset_signals"]()
        assert subprocess.run(interrupted, capture_output=True).stdout == b""
        os.kill(os.getpid(), signal.SIGINT)		# itself still ignores it
    finally:
        signal.signal(signal.SIGINT, before)


def test_list_for_a_reader_that_goes():
    """As with | head: no traceback."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([ROOT / "tests/run", "--list"], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert done.stderr == "" and done.returncode == -signal.SIGPIPE


# ---- bench/run repair ----

def test_blocks_of_a_sparse_file(tmp_path):
    path = tmp_path / "sparse"
    with open(path, "wb") as f:
        f.truncate(100 * repair.BLOCK)
        for block in (3, 4, 99):
            f.seek(block * repair.BLOCK + 17)
            f.write(b"x")
        f.seek(50 * repair.BLOCK)
        f.write(bytes(repair.BLOCK))
    assert repair.data_blocks(path) == [3, 4, 99]
    assert list(repair.numbers("1, Group descriptors at 7-9")) == [1, 7, 8, 9]


def test_wiping_is_the_same_each_time(tmp_path):
    image = tmp_path / "image"
    chosen = []
    for _ in range(2):
        image.write_bytes(b"a" * 400 * repair.BLOCK)
        chosen.append((repair.wipe(image, range(100, 300), 5, 7), image.read_bytes()))
    assert chosen[0] == chosen[1]
    blocks, data = chosen[0]
    assert len(blocks) == 10 and set(blocks) <= set(range(100, 300))
    kept = [data[n * repair.BLOCK:(n + 1) * repair.BLOCK] == b"a" * repair.BLOCK for n in range(400)]
    assert [n for n in range(400) if not kept[n]] == blocks


def test_which_paths_could_come_back():
    """root 2 / "dir" 10 / "file-0" 11, "file-1" 12; 12 is also "/name-2"."""
    leaves = object.__new__(repair.Leaves)
    leaves.content = {10: {5}, 11: {5}, 12: {5, 6}}
    leaves.names = {(2, b"dir"): (10, {4, 5}), (10, b"file-0"): (11, {5, 6}), (10, b"file-1"): (12, {5, 6}),
                    (2, b"name-2"): (12, {4, 7})}
    assert leaves.could([], 3) == [True, True, True]
    assert leaves.could([4, 7], 3) == [True, True, False]
    assert leaves.could([4], 3) == [True, True, True]
    assert leaves.could([6], 3) == [True, False, False]
    assert leaves.could([5], 3) == [False, False, False]
    leaves.content = {10: {5}, 11: {8}, 12: {8}}
    assert leaves.could([5], 3) == [True, True, True]
    assert leaves.could([4, 5], 3) == [False, False, True]


def test_goals_of_repair_can_be_missed():
    results = repair.Results()
    for seed in range(3):
        good = {"right": 99.0, "could": 99.0, "wrong": 0, "clean": 100, "crashed": 0}
        results.add(1, "tux3", good)
        results.add(1, "ext4", {**good, "right": 98.0})
    assert all(met for _, met in repair.goals_of(results, (0.1, 1), ["tux3", "ext4"]))
    results.add(1, "tux3", {"right": 0.0, "could": 99.0, "wrong": 1, "clean": 0, "crashed": 100})
    results.missed.append((4, 1, [1, 2]))
    missed = [text for text, met in repair.goals_of(results, (0.1, 1), ["tux3", "ext4"]) if not met]
    assert len(missed) == 4
    for _ in range(4):
        results.add(1, "ext4", {"right": 99.5})
    assert any("more is back" in text and not met for text, met in repair.goals_of(results, (1,), ["tux3", "ext4"]))
