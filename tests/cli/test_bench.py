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
common.SBIN = "/nonexistent"
common.run = lambda command, **_: ""
import runpy
runpy.run_path("{ROOT}/bench/run", run_name="__main__")
"""], capture_output=True, text=True)
    assert done.returncode == 2 and "fs_mark" in done.stderr and "deps.sh" in done.stderr, done
    assert os.listdir(tmp_path) == []


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
