# SPDX-License-Identifier: GPL-2.0-or-later
"""dbench: its load file, running it, and what it prints."""
import hashlib
import os
import pty
import re
import subprocess
from pathlib import Path

LOADFILE = "/usr/share/dbench/client.txt"
STATUS = re.compile(r"^\s*\d+\s+(?P<lines>\d+)\s+[0-9.]+ MB/sec\s+(?P<phase>warmup|execute)\s+(?P<seconds>\d+) sec")
OPERATION = re.compile(r"^\s*([A-Za-z]+)\s+(\d+)\s+([0-9.]+)\s+([0-9.]+)\s*$")
RESULT = re.compile(r"^Throughput ([0-9.]+) MB/sec.*?(\d+) clients.*max_latency=([0-9.]+) ms", re.M)


def without_flush(text):
    """The load without the lines that have dbench call fsync, and how many those were."""
    lines = text.splitlines(keepends=True)
    kept = [line for line in lines if not re.match(r"Flush\b", line)]
    return "".join(kept), len(lines) - len(kept)


def prepare_loads(folder):
    """Both load files in folder; a description of each."""
    text = Path(LOADFILE).read_text()
    changed, removed = without_flush(text)
    loads = {"flush": text, "no-flush": changed}
    described = {}
    for name, load in loads.items():
        (folder / f"{name}.txt").write_text(load)
        how = "unmodified"
        if name == "no-flush":
            how = f"the {removed:,} lines that begin with \"Flush\" removed, nothing else"
        described[name] = (f"{LOADFILE}, {how}: {load.count(chr(10)):,} lines, sha256 "
                           f"{hashlib.sha256(load.encode()).hexdigest()}")
    return described


def parse_status(line):
    """(phase, second, lines of the load done by all clients so far), None if it is no line of status."""
    found = STATUS.match(line)
    return found and (found["phase"], int(found["seconds"]), int(found["lines"]))


def parse_result(text):
    """{"mb_s", "max_latency_ms", "operations": {name: {"count", "avg_ms", "max_ms"}}}"""
    found = RESULT.search(text)
    if not found:
        raise ValueError(f"dbench printed no result:\n{text[-2000:]}")
    operations = {}
    table = text[text.rindex("Operation"):] if "Operation" in text else ""
    for line in table.splitlines():
        if match := OPERATION.match(line):
            operations[match[1]] = {"count": int(match[2]), "avg_ms": float(match[3]), "max_ms": float(match[4])}
    if not operations:
        raise ValueError(f"dbench printed no table of operations:\n{text[-2000:]}")
    return {"mb_s": float(found[1]), "max_latency_ms": float(found[3]), "operations": operations}


def run(load, folder, seconds, clients, on_status):
    """Runs it; on_status(phase, second, lines) is called at each line of status, when it comes.  Its whole output."""
    # To a terminal it writes line by line.
    ours, theirs = pty.openpty()
    process = subprocess.Popen(["dbench", "-c", str(load), "-D", str(folder), "-t", str(seconds), str(clients)],
                               stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
    os.close(theirs)
    text = []
    with open(ours, errors="replace", newline="") as output:
        try:
            for line in output:
                line = line.replace("\r", "")
                text.append(line)
                if status := parse_status(line):
                    on_status(*status)
        except OSError:
            # EIO: the last one has closed the terminal.
            pass
    if process.wait():
        raise RuntimeError(f"dbench: exit status {process.returncode}\n{''.join(text)[-2000:]}")
    return "".join(text)
