# SPDX-License-Identifier: GPL-2.0-or-later
"""PostgreSQL with full_page_writes=off, for bench/guest/crash.py: are its pages torn, and are committed transactions there?"""
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

from crash_program import Damage, Program, digest, text_of
from filesystems import execute

class Postgres(Program):
    """Transaction N adds row N to a log and sets some rows of another table to N, by one client.  Another makes checkpoints."""

    ROWS, CHANGED, BODY_MAX, CHECKPOINT_S = 20000, 10, 500, 8
    USER, WORK, LIMIT_S = "user1", Path("/tmp/crash"), 240
    CONFIG = {"full_page_writes": "off", "fsync": "on", "synchronous_commit": "on", "shared_buffers": "4MB"}
    QUIET = {"listen_addresses": "''", "log_line_prefix": "''"}
    TABLES = """
CREATE EXTENSION amcheck;
CREATE TABLE log(number int PRIMARY KEY, body text, digest text);
CREATE TABLE state(id int PRIMARY KEY, number int, pad text);
INSERT INTO state SELECT id, 0, repeat('p', 300) FROM generate_series(0, {rows} - 1) id;
CHECKPOINT;
"""
    IMAGE, TEMPLATE = WORK / "postgresql", WORK / "template"

    @classmethod
    def describe(cls):
        return (f"{cls.run('postgres', '--version').strip()}, data checksums, {cls.told()}; one client, transactions that add a row and change "
                f"{cls.CHANGED} of {cls.ROWS}; a checkpoint every {cls.CHECKPOINT_S} s.  Afterwards: it starts and recovers, all committed "
                "transactions are there as wholes, bt_index_check, pg_checksums")

    @classmethod
    def told(cls):
        return ", ".join(f"{name}={value}" for name, value in cls.CONFIG.items())

    # ---- programs ----

    @classmethod
    def program(cls, name):
        return next(cls.IMAGE.glob("usr/lib/postgresql/*/bin")) / name

    @classmethod
    def settings(cls):
        return {"user": cls.USER, "group": cls.USER, "extra_groups": [], "cwd": "/", "env": {
            "PATH": os.environ["PATH"], "LC_ALL": "C", "LD_LIBRARY_PATH": str(cls.IMAGE / "usr/lib/x86_64-linux-gnu")}}

    @classmethod
    def run(cls, name, *words, text=""):
        done = subprocess.run([cls.program(name), *map(str, words)], input=text, capture_output=True, text=True, errors="replace",
                              timeout=cls.LIMIT_S, check=False, **cls.settings())
        if done.returncode:
            told = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
            raise Damage(f"{name} ends with status {done.returncode}: {'; '.join(told[:3])}")
        return done.stdout

    @classmethod
    def once(cls, job):
        """A cluster in memory, which each filesystem gets a copy of."""
        cls.IMAGE.mkdir()
        execute(["mount", "-t", "erofs", "-o", "ro", job["image"], cls.IMAGE])
        cls.make_template()

    @classmethod
    def make_template(cls):
        folder = cls.TEMPLATE
        folder.mkdir()
        shutil.chown(folder, cls.USER)
        cls.run("initdb", "--data-checksums", "--no-sync", "--no-locale", "-E", "UTF8", "-A", "trust", "-U", "crash", "-D", folder / "db")
        with open(folder / "db/postgresql.conf", "a") as file:
            file.writelines(f"{name} = {value}\n" for name, value in (cls.CONFIG | cls.QUIET).items())
        template = cls(folder, 0)
        template.start()
        template.fill()
        template.end(signal.SIGINT)

    def fill(self):
        self.sql(self.TABLES.format(rows=self.ROWS))

    # ---- the server ----

    def __init__(self, folder, seed):
        super().__init__(folder, seed)
        self.socket = self.WORK / f"run-{folder.parent.name}-{folder.name}"
        self.server = None

    def start(self):
        self.socket.mkdir(exist_ok=True)
        shutil.chown(self.socket, self.USER)
        log = self.socket / "log"
        with open(log, "wb") as told:
            self.server = subprocess.Popen([self.program("postgres"), "-D", self.folder / "db", "-k", self.socket], stdout=told,
                                           stderr=told, stdin=subprocess.DEVNULL, **self.settings())
        end = time.monotonic() + self.LIMIT_S
        while b"ready to accept connections" not in log.read_bytes():
            if self.server.poll() is not None or time.monotonic() > end:
                lines = log.read_text(errors="replace").splitlines()
                serious = [line for line in lines if "PANIC" in line or "FATAL" in line or "ERROR" in line or "WARNING" in line]
                raise Damage(f"the server does not start: {'; '.join((serious or lines)[:3])}")
            time.sleep(0.1)

    def end(self, how):
        if self.server:
            self.server.send_signal(how)
            try:
                self.server.wait(60)
            except subprocess.TimeoutExpired:
                self.server.kill()
                self.server.wait()
            self.server = None

    def stop(self):
        self.end(signal.SIGQUIT)

    def client(self):
        return ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", self.socket, "-U", "crash", "-d", "postgres"]

    def sql(self, text):
        return self.run("psql", *self.client(), text=text).splitlines()

    # ---- the load ----

    def setup(self):
        execute(["cp", "-a", self.TEMPLATE / "db", self.folder / "db"])

    def plan(self, number):
        chance = random.Random(number)
        return text_of(number, chance.randrange(self.BODY_MAX)), [chance.randrange(self.ROWS) for _ in range(self.CHANGED)]

    def transaction(self, number):
        body, changed = self.plan(number)
        return (f"BEGIN; INSERT INTO log VALUES ({number}, '{body}', '{digest(body.encode())}'); "
                f"UPDATE state SET number = {number} WHERE id IN ({', '.join(map(str, changed))}); COMMIT;\n\\echo done {number}\n")

    def load(self, progress):
        self.start()
        clients = [subprocess.Popen([self.program("psql"), *self.client()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                    **self.settings()) for _ in range(2)]
        one, other = clients
        number, checkpoints = 0, 0
        while not progress.over():
            number += 1
            one.stdin.write(self.transaction(number))
            one.stdin.flush()
            if (told := one.stdout.readline().strip()) != f"done {number}":
                raise RuntimeError(f"PostgreSQL does not answer \"done {number}\", but \"{told}\"")
            progress.done(number)
            if progress.passed() > (checkpoints + 1) * self.CHECKPOINT_S:
                checkpoints += 1
                other.stdin.write("CHECKPOINT;\n")
                other.stdin.flush()
        for client in clients:
            client.kill()
            client.wait()

    # ---- afterwards ----

    def check(self, acknowledged):
        try:
            self.start()
            found = self.read(acknowledged)
            self.end(signal.SIGINT)
            self.run("pg_checksums", "--check", "-D", self.folder / "db")
            return found
        except subprocess.TimeoutExpired as error:
            raise Damage(str(error)) from None

    def read(self, acknowledged):
        last, expected = 0, dict.fromkeys(range(self.ROWS), 0)
        for line in self.sql("SELECT number, body, digest FROM log ORDER BY number;"):
            number, body, told = line.split("|")
            if int(number) != last + 1:
                raise Damage(f"transaction {last + 1} is missing, {number} is there")
            last = int(number)
            wanted, changed = self.plan(last)
            if body != wanted or told != digest(body.encode()):
                raise Damage(f"row {number} has other contents than were written")
            expected.update(dict.fromkeys(changed, last))
        if last < acknowledged:
            raise Damage(f"transactions {last + 1} to {acknowledged}, which were committed, are missing")
        found = dict(map(int, line.split("|")) for line in self.sql("SELECT id, number FROM state;"))
        if found != expected:
            wrong = [row for row in expected if found.get(row) != expected[row]]
            raise Damage(f"{len(wrong)} of {self.ROWS} rows are not as transaction {last} left them")
        self.sql("SELECT bt_index_check('log_pkey', true); SELECT bt_index_check('state_pkey', true);")
        return last
