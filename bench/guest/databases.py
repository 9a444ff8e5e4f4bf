# SPDX-License-Identifier: GPL-2.0-or-later
"""Measurements of databases, for bench/guest/agent.py: pgbench, and SQLite with its journals."""
import random
import re
import signal
import sqlite3
import time
from pathlib import Path

from counters import Usage
from crash_postgres import Postgres
from filesystems import execute


def counts_of_transactions(usage, transactions):
    disk = usage.disk
    yield "flushes", "per transaction", "lower", disk and disk["flushes"] / transactions
    yield "written", "KiB per transaction", "lower", disk and disk["write_sectors"] / 2 / transactions
    yield "CPU machine", "us/transaction", "lower", usage.busy_s * 1e6 / transactions


# ---- PostgreSQL ----

class PgBench(Postgres):
    """A cluster made once, in memory, with pgbench's tables; a copy of it on each filesystem."""

    WORK, SCALE = Path("/tmp/pgbench"), 0
    IMAGE, TEMPLATE = WORK / "postgresql", WORK / "template"
    CONFIG = {"fsync": "on", "synchronous_commit": "on"}

    @classmethod
    def once_for(cls, image, scale):
        if cls.SCALE != scale:
            cls.SCALE = scale
            cls.WORK.mkdir()
            cls.once({"image": image})

    def fill(self):
        self.pgbench("-i", "-q", "-s", self.SCALE)

    def pgbench(self, *words):
        return self.run("pgbench", "-h", self.socket, "-U", "crash", *words, "postgres")

    def setup(self, full_page_writes):
        super().setup()
        with open(self.folder / "db/postgresql.conf", "a") as file:
            file.write(f"full_page_writes = {full_page_writes}\n")


def measure_pgbench(setting):
    """params: image, scale, clients, seconds, full_page_writes"""
    params = setting.params
    PgBench.once_for(params["image"], params["scale"])
    server = PgBench(setting.path, 0)
    server.setup(params["full_page_writes"])
    server.start()
    try:
        server.sql("CHECKPOINT;")
        begin = setting.snapshot()
        text = server.pgbench("-c", params["clients"], "-j", 1, "-T", params["seconds"], "-n")
        usage = Usage(begin, setting.snapshot())
    finally:
        server.end(signal.SIGINT)
    found = {key: re.search(pattern, text) for key, pattern in (
        ("tps", r"tps = ([0-9.]+)"), ("average", r"latency average = ([0-9.]+) ms"), ("done", r"actually processed: (\d+)"))}
    if not all(found.values()) or not int(found["done"][1]):
        raise RuntimeError(f"pgbench printed no result:\n{text[-2000:]}")
    setting.details["pgbench"] = text
    yield "", "transactions/s", "higher", float(found["tps"][1])
    yield "mean latency", "ms", "lower", float(found["average"][1])
    yield from counts_of_transactions(usage, int(found["done"][1]))


# ---- SQLite ----

ROWS, CHANGED, TEXT_BYTES = 20000, 3, 400


def open_database(path, journal):
    database = sqlite3.connect(path, isolation_level=None)
    database.execute(f"PRAGMA journal_mode={journal}")
    database.execute("PRAGMA synchronous=FULL")
    return database


def measure_sqlite(setting):
    """params: journal, seconds"""
    params, chance, took_s = setting.params, random.Random(1), []
    database = open_database(setting.path / "data.db", params["journal"])
    database.execute("CREATE TABLE log(number INTEGER PRIMARY KEY, body TEXT)")
    database.execute("CREATE TABLE state(id INTEGER PRIMARY KEY, number INTEGER, pad TEXT)")
    database.execute("BEGIN")
    database.executemany("INSERT INTO state VALUES(?, 0, ?)", [(n, "p" * 100) for n in range(ROWS)])
    database.execute("COMMIT")
    begin, begun, now = setting.snapshot(), time.monotonic(), time.monotonic()
    while now < begun + params["seconds"]:
        before = now
        database.execute("BEGIN IMMEDIATE")
        database.execute("INSERT INTO log VALUES(NULL, ?)", ("t" * TEXT_BYTES,))
        for _ in range(CHANGED):
            database.execute("UPDATE state SET number = number + 1 WHERE id = ?", (chance.randrange(ROWS),))
        database.execute("COMMIT")
        now = time.monotonic()
        took_s.append(now - before)
    usage = Usage(begin, setting.snapshot())
    database.close()
    yield "", "transactions/s", "higher", len(took_s) / (now - begun)
    yield "p99", "ms", "lower", sorted(took_s)[len(took_s) * 99 // 100] * 1000
    yield "max latency", "ms", "lower", max(took_s) * 1000
    yield from counts_of_transactions(usage, len(took_s))


DATABASES = {"pgbench": measure_pgbench, "sqlite": measure_sqlite}
