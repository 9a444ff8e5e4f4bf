# SPDX-License-Identifier: GPL-2.0-or-later
"""SQLite with synchronous=OFF, for bench/guest/crash.py."""
import random
import sqlite3
import time

from crash_program import Damage, Program, digest, text_of


class Sqlite(Program):
    """Transaction N adds row N to a log and sets a few rows of another table to N; so there is one right state for each N."""

    JOURNAL = "delete"
    ROWS, CHANGED, PER_SECOND, BODY_MAX = 2000, 5, 50, 3000

    @classmethod
    def describe(cls):
        return (f"SQLite {sqlite3.sqlite_version}, journal_mode={cls.JOURNAL}, synchronous=OFF; {cls.PER_SECOND} transactions a second at "
                f"most: adds a row of up to {cls.BODY_MAX} bytes, changes {cls.CHANGED} of {cls.ROWS} rows.  Afterwards: integrity_check, "
                "transactions 1 to N are there as wholes, nothing of others")

    def open(self):
        database = sqlite3.connect(self.folder / "data.db", isolation_level=None)
        try:
            database.execute("PRAGMA synchronous=OFF")
            database.execute(f"PRAGMA journal_mode={self.JOURNAL}")
        except sqlite3.Error:
            # Whoever keeps the exception would keep the file open.
            database.close()
            raise
        return database

    def setup(self):
        database = self.open()
        database.execute("CREATE TABLE log(number INTEGER PRIMARY KEY, body TEXT, digest TEXT)")
        database.execute("CREATE TABLE state(id INTEGER PRIMARY KEY, number INTEGER, pad TEXT)")
        database.execute("CREATE INDEX state_number ON state(number)")
        database.execute("BEGIN")
        database.executemany("INSERT INTO state VALUES(?, 0, ?)", [(n, "p" * 100) for n in range(self.ROWS)])
        database.execute("COMMIT")
        database.close()

    def plan(self, number):
        chance = random.Random(number)
        return text_of(number, chance.randrange(self.BODY_MAX)), [chance.randrange(self.ROWS) for _ in range(self.CHANGED)]

    def load(self, progress):
        database, number = self.open(), 0
        while not progress.over():
            number += 1
            body, changed = self.plan(number)
            database.execute("BEGIN")
            database.execute("INSERT INTO log VALUES(?, ?, ?)", (number, body, digest(body.encode())))
            for row in changed:
                database.execute("UPDATE state SET number = ? WHERE id = ?", (number, row))
            database.execute("COMMIT")
            progress.done(number)
            time.sleep(max(0, number / self.PER_SECOND - progress.passed()))
        # As it is: the power goes.
        self.left = database

    def check(self, _acknowledged):
        try:
            database = self.open()
            try:
                return self.read(database)
            finally:
                database.close()
        except sqlite3.Error as error:
            raise Damage(f"SQLite: {error}") from None

    def read(self, database):
        told = database.execute("PRAGMA integrity_check").fetchall()
        if told != [("ok",)]:
            raise Damage(f"integrity_check: {'; '.join(str(line[0]) for line in told[:3])}")
        last, expected = 0, dict.fromkeys(range(self.ROWS), 0)
        for number, body, told in database.execute("SELECT number, body, digest FROM log ORDER BY number"):
            if number != last + 1:
                raise Damage(f"transaction {last + 1} is missing, {number} is there")
            last = number
            wanted, changed = self.plan(number)
            if body != wanted or told != digest(body.encode()):
                raise Damage(f"row {number} has other contents than were written")
            expected.update(dict.fromkeys(changed, number))
        found = dict(database.execute("SELECT id, number FROM state"))
        wrong = [row for row in expected if found.get(row) != expected[row]]
        if wrong or len(found) != len(expected):
            raise Damage(f"{len(wrong)} of {self.ROWS} rows are not as transaction {last} left them")
        return last


class SqliteWal(Sqlite):
    JOURNAL = "wal"
