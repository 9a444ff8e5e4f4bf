# SPDX-License-Identifier: GPL-2.0-or-later
"""The benchmarks in the virtual machine, as far as they need none: reading what programs and kernel print, goals, what
becomes of steps when a machine dies."""
import json
import sys
from argparse import Namespace
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "bench"), str(ROOT / "bench/guest")]

import counters
import dbench
import vm_machine
import vm_page
from vm_common import Group, plan
from vm_nearfull import GoalOfWork
from vm_rows import Goal, Rows, latency_table, table_of

DBENCH_OUTPUT = """dbench version 4.00 - Copyright Andrew Tridgell 1999-2004

Running for 5 seconds with load 'client.txt' and minimum warmup 1 secs
   1     12345   812.59 MB/sec  warmup   1 sec  latency 14.142 ms
   1    365328  1025.17 MB/sec  execute   1 sec  latency 2.220 ms
   2    882846   956.79 MB/sec  execute   4 sec  latency 0.931 ms
   1  cleanup   5 sec

 Operation      Count    AvgLat    MaxLat
 ----------------------------------------
 NTCreateX     150964     0.008    28.684
 Unlink         30504     0.012     8.428
 Flush          10584     0.000     0.035

Throughput 956.787 MB/sec  1 clients  1 procs  max_latency=28.694 ms
"""


# ---- dbench ----

def test_dbench_result():
    result = dbench.parse_result(DBENCH_OUTPUT)
    assert result["mb_s"] == 956.787 and result["max_latency_ms"] == 28.694
    assert result["operations"] == {"NTCreateX": {"count": 150964, "avg_ms": 0.008, "max_ms": 28.684},
                                    "Unlink": {"count": 30504, "avg_ms": 0.012, "max_ms": 8.428},
                                    "Flush": {"count": 10584, "avg_ms": 0.0, "max_ms": 0.035}}


@pytest.mark.parametrize("text", ["", "dbench: no such file\n", DBENCH_OUTPUT.split("Throughput")[0],
                                  "Throughput 1 MB/sec  1 clients  1 procs  max_latency=1 ms\n"])
def test_dbench_without_result(text):
    with pytest.raises(ValueError):
        dbench.parse_result(text)


def test_dbench_status():
    found = [status for line in DBENCH_OUTPUT.splitlines() if (status := dbench.parse_status(line))]
    assert found == [("warmup", 1, 12345), ("execute", 1, 365328), ("execute", 4, 882846)]


def test_load_without_flush():
    others = "Close 9938 NT_STATUS_OK\nNTCreateX \"\\Flush x\" 1\nFlushed\n"
    load = f"Flush 9938 NT_STATUS_OK\n{others}Flush 1 NT_STATUS_OK\n"
    assert dbench.without_flush(load) == (others, 2)


# ---- what the kernel counts ----

def test_disk_stat():
    stat = counters.parse_disk_stat("   11 12 13 14   21 22 23 24   0 31 32   41 42 43 44   51 52\n")
    assert stat == {"reads": 11, "read_merges": 12, "read_sectors": 13, "writes": 21, "write_merges": 22,
                    "write_sectors": 23, "discards": 41, "flushes": 51}


def test_disk_stat_of_old_kernel():
    with pytest.raises(ValueError):
        counters.parse_disk_stat("11 12 13 14 21 22 23 24 0 31 32")


def test_busy_ticks():
    assert counters.parse_busy_ticks("cpu  1 2 4 1000 2000 8 16 0 0 0\ncpu0 9 9 9 9 9 9 9 9 9 9\n") == 31


@pytest.mark.parametrize("name, flags, kernel", [
    ("kworker/u4:1-flush-254:0", 69238880, True), ("a) S (b", 4194304, False)])
def test_task_stat(name, flags, kernel):
    assert counters.parse_task_stat(f"7 ({name}) S 2 0 0 0 -1 {flags} 0 0 0 0 5 6 0 0 20 0\n") == (name, kernel, 5, 6)


@pytest.mark.parametrize("name, group", [
    ("kworker/u4:1-flush-254:0", "kworker"), ("kworker/R-btrfs-worker", "kworker"), ("ksoftirqd/1", "ksoftirqd"),
    ("xfsaild/vda", "xfsaild"), ("kswapd0", "kswapd"), ("btrfs-transacti", "btrfs-transacti"),
    ("tux3-back", "tux3-back")])
def test_thread_group(name, group):
    assert counters.thread_group(name) == group


def test_usage_counts_new_threads_and_tells_programs_apart():
    def snapshot(seconds, tasks, writes, ticks):
        taken = object.__new__(counters.Snapshot)
        taken.time, taken.tasks, taken.own = seconds, tasks, {"commits": writes, "same": 7}
        taken.disk, taken.busy_ticks_before, taken.busy_ticks_after = {"writes": writes}, ticks, ticks
        return taken

    begin = snapshot(10, {2: ("kworker/0:1", True, 10**9, 0, 0), 9: ("dbench", False, 10**9, 0, 0)}, 100, 0)
    end = snapshot(12, {2: ("kworker/0:1-events", True, 2 * 10**9, 0, 0), 3: ("kworker/1:1", True, 5 * 10**8, 0, 0),
                        9: ("dbench", False, 4 * 10**9, 0, 0)}, 130, 100)
    usage = counters.Usage(begin, end)
    assert usage.seconds == 2 and usage.disk == {"writes": 30} and usage.busy_s == 1
    assert usage.own == {"commits": 30}
    assert usage.kernel_threads == {"kworker": 1.5} and usage.kernel_s() == 1.5 and usage.programs == {"dbench": 3}


def test_numbers_in_a_folder(tmp_path):
    for name, text in (("a", "12\n"), ("b", "-3"), ("label", "x")):
        (tmp_path / name).write_text(text)
    (tmp_path / "folder").mkdir()
    assert counters.read_numbers(tmp_path) == {"a": 12, "b": -3}
    assert counters.read_numbers(tmp_path / "none") == counters.read_numbers(None) == {}


def test_snapshot_of_this_machine():
    usage = counters.Usage(counters.Snapshot(None), counters.Snapshot(None))
    assert usage.disk is None and usage.busy_s >= 0 and usage.programs


# ---- rows and goals ----

def rows_of(samples, title="g", part="", better="higher"):
    rows = Rows()
    for who, values in samples.items():
        for number, value in enumerate(values):
            if value is not None:
                rows.add(Group(title, ""), who, number, [(part, "MB/s", better, value)])
    return rows


@pytest.mark.parametrize("samples, factor, at_least, met", [
    ({"tux3": [120], "tmpfs": [100]}, 1.15, True, True),
    ({"tux3": [114], "tmpfs": [100]}, 1.15, True, False),
    ({"tux3": [60], "tmpfs": [100]}, 0.6, False, True),
    ({"tux3": [61], "tmpfs": [100]}, 0.6, False, False),
    # Ratios are taken within rounds: 1.2, 1.2, 0.5; the ratio of medians would be 0.8.
    ({"tux3": [120, 24, 50], "tmpfs": [100, 20, 100]}, 1.15, True, True),
    # A round without one of them does not count.
    ({"tux3": [120, None, 120], "tmpfs": [100, 300, 100]}, 1.15, True, True),
    ({"tux3": [120]}, 1.15, True, None),
    ({"tux3": [120, None], "tmpfs": [None, 100]}, 1.15, True, None),
    ({"tmpfs": [120]}, 1.15, True, None),
])
def test_goal(samples, factor, at_least, met):
    text, judged = Goal("g", "", "tmpfs", factor, at_least).judge(rows_of(samples))
    assert judged is met and f"{factor:g} x tmpfs" in text


def test_goal_of_group_that_was_not_measured():
    assert Goal("other", "", "tmpfs", 1, True).judge(rows_of({"tux3": [1], "tmpfs": [1]}))[1] is None


@pytest.mark.parametrize("tux3, peer, says, met", [
    # Seconds, commands refused, KiB written, of each round.
    ([(2, 0, 100)] * 2, [(1, 0, 100)] * 2, "measured 2.00 x", False),
    ([(2, 0, 100)] * 2, [(1, 1, 90)] * 2, "was refused before", None),
    ([(2, 0, 100), (1, 0, 100)], [(1, 1, 10), (1, 0, 100)], "measured 1.00 x (1.00 beside 1.00 s); 1 rounds without", True),
    ([(2, 1, 100)], [(1, 1, 10)], "was refused before", None),
    ([(2, 1, 100)], [(1, 1, 90)], "measured 2.00 x", False),
    ([(2, 1, 100)], [(1, 0, 10)], "measured 2.00 x", False),
])
def test_goal_beside_who_did_the_work(tux3, peer, says, met):
    rows = Rows()
    for who, rounds in (("tux3", tux3), ("btrfs", peer)):
        for number, (seconds, refused, written) in enumerate(rounds):
            rows.add(Group("g", ""), who, number, [("and sync", "s", "lower", seconds), ("refused", "commands", "lower", refused),
                                                   ("written", "KiB in all", "lower", written)])
    text, judged = GoalOfWork("g", "and sync", "btrfs").judge(rows)
    assert judged is met and says in text


def test_table():
    rows = rows_of({"tux3": [12.0], "tmpfs": [24.0, 26.0], "xfs": [0]}, part="write bios", better="lower")
    head, lines = table_of(rows.all(), ["tux3", "tmpfs", "xfs", "ext4"])
    assert head[1:] == ["tux3", "tmpfs", "xfs", "ext4", "/tmpfs", "/xfs", "/ext4"]
    assert lines == [["write bios, MB/s", "12.0", "25.0 ±4%", "0", "-", "0.50", "-", "-"]]
    assert latency_table(rows.all(), ["tux3"]) is None


def test_latency_table():
    rows = rows_of({"tux3": [12.0], "ext4": [120.0]}, part="Unlink average")
    for who, value in (("tux3", 1.5), ("ext4", 2.5)):
        rows.add(Group("g", ""), who, 0, [("Unlink maximum", "ms", "lower", value)])
    assert latency_table(rows.all(), ["tux3", "ext4"])[1] == [["Unlink", "12.0", "120", "1.50", "2.50"]]


def test_json_row():
    row = json.loads(json.dumps(rows_of({"tux3": [1.0, 3.0, 2.0]}, "dbench", "flushes", "lower").all()[0].as_json()))
    assert row["name"] == "dbench: flushes" and row["results"] == {"tux3": 2.0} and row["better"] == "lower"
    assert row["samples"] == {"tux3": [1.0, 3.0, 2.0]}


@pytest.mark.parametrize("with_plots", [True, False])
def test_page(tmp_path, monkeypatch, with_plots):
    if not with_plots:
        monkeypatch.setattr(vm_page, "pyplot", None)
    elif vm_page.pyplot is None:
        pytest.skip("matplotlib is not installed")
    rows = rows_of({"tux3": [12, 13], "tmpfs": [10, 11]})
    vm_page.write_page(tmp_path / "page.html", "A <title>", {"setting": "a < b"}, ["g", "empty"], rows,
                       [("a goal", False)], ["tux3", "tmpfs"])
    page = (tmp_path / "page.html").read_text()
    assert "A &lt;title&gt;" in page and "a &lt; b" in page and "MISSED" in page
    assert ("<svg" in page) == with_plots and ("python3-matplotlib" in page) != with_plots
    # One page: nothing is loaded.
    assert "src=" not in page and "<link" not in page


# ---- machines ----

AGENT = """
import json, os, sys, time
def say(**what): print(json.dumps(what), flush=True)
job = json.load(open(sys.argv[1]))
say(machine={"guest kernel": "x"})
for number, step in enumerate(job["steps"]):
    say(begin=number)
    if step["fs"] in os.environ.get("DIES", ""): sys.exit(97)
    if step["fs"] in os.environ.get("HANGS", ""): time.sleep(60)
    if step["fs"] in os.environ.get("FAILS", ""): say(step=number, error="no luck"); continue
    if step["fs"] in os.environ.get("STICKS", ""): say(step=number, error="busy"); sys.exit(1)
    say(step=number, figures=[["", "s", "lower", 1.0]], mounted="m", details={})
if "COMPLAINS" in os.environ: sys.exit(97)
"""


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """A Bench whose machines are AGENT, and the list of what it has handed on."""
    agent = tmp_path / "agent.py"
    agent.write_text(AGENT)
    done = []
    bench = vm_machine.Bench(Namespace(rounds=2, cpus=1, memory=64), ["ext4", "xfs"],
                             lambda step, result: done.append((step.fs, step.round)))
    command = bench.command
    monkeypatch.setattr(bench, "command",
                        lambda steps: command(steps) and [sys.executable, agent, bench.folder / "job.json"])
    yield bench, done
    bench.close()
    assert not bench.folder.exists()


def two_rounds(limit_s=30):
    return plan([Group("g", "dbench", limit_s), Group("h", "dbench", limit_s)], ["ext4", "xfs"], 2)


def test_order():
    groups = [Group("g", "dbench"), Group("h", "dbench")]
    assert [step.fs for step in plan(groups, ["a", "b", "c"], 2)] == [*"abc", *"bca", *"acb", *"bac"]


def test_all_steps_are_done(bench):
    bench, done = bench
    bench.run(two_rounds())
    assert done == [("ext4", 0), ("xfs", 0), ("xfs", 0), ("ext4", 0), ("ext4", 1), ("xfs", 1), ("xfs", 1), ("ext4", 1)]
    assert not bench.troubles and bench.mounted == {"ext4": "m", "xfs": "m"}


@pytest.mark.parametrize("how, limit_s", [("DIES", 30), ("HANGS", 0.5), ("FAILS", 30), ("STICKS", 30)])
def test_a_filesystem_in_trouble_costs_only_its_own_steps(bench, monkeypatch, how, limit_s):
    bench, done = bench
    monkeypatch.setenv(how, "xfs")
    bench.run(two_rounds(limit_s))
    assert done == [("ext4", 0)] * 2 + [("ext4", 1)] * 2
    assert len(bench.troubles) == 4 and all("xfs" in trouble for trouble in bench.troubles)


def test_a_kernel_that_complains_at_the_end_is_told_of(bench, monkeypatch):
    bench, done = bench
    monkeypatch.setenv("COMPLAINS", "1")
    bench.run(two_rounds())
    assert len(done) == 8 and bench.troubles == [f"the kernel told of a defect, in round {n}" for n in (1, 2)]


def test_a_newer_xfsprogs_comes_behind_the_other_disks(bench, monkeypatch):
    bench, _ = bench
    monkeypatch.setattr(vm_machine, "programs_disk", lambda part, path: path)
    bench.add_programs()
    bench.command([])
    assert not bench.more_disks and json.loads((bench.folder / "job.json").read_text())["xfsprogs"] is None
    bench.names = ["tux3", "xfs-parent1"]
    bench.add_disk(bench.folder / "other")
    bench.add_programs()
    bench.command([])
    assert [disk.name for disk in bench.more_disks] == ["other", "xfsprogs"]
    assert json.loads((bench.folder / "job.json").read_text())["xfsprogs"] == "/dev/vdc"


def test_no_machine_at_all(bench, monkeypatch):
    bench, _ = bench
    monkeypatch.setattr(bench, "command", lambda steps: ["false"])
    with pytest.raises(RuntimeError, match="no virtual machine"):
        bench.run(two_rounds())
