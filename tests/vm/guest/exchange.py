#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Contents that swap (XFS_IOC_EXCHANGE_RANGE, XFS_IOC_COMMIT_RANGE), COLLAPSE_RANGE and INSERT_RANGE.

    exchange.py CHECK FOLDER [ARGUMENT]
"""
import ctypes
import errno
import fcntl
import mmap
import os
import random
import signal
import struct
import sys
import time

BLOCK = 4096
EXCHANGE_RANGE = 0x40285881     # _IOW('X', 129, 40 bytes)
START_COMMIT = 0x80585882       # _IOR('X', 130, 88 bytes)
COMMIT_RANGE = 0x40585883       # _IOW('X', 131, 88 bytes)
TO_EOF, DSYNC, DRY_RUN, FILE1_WRITTEN = 1, 2, 4, 8
KEEP_SIZE, PUNCH, COLLAPSE, ZERO, INSERT = 1, 2, 8, 16, 32

CAPABILITY = struct.pack("<5I", 0x02000001, 0x1000, 0, 0, 0)    # of a program that may do more

libc = ctypes.CDLL(None, use_errno=True)


def exchange(file1, file2, offset1=0, offset2=0, length=0, flags=0, pad=0):
    fcntl.ioctl(file2, EXCHANGE_RANGE, struct.pack("=iIQQQQ", file1, pad, offset1, offset2, length, flags))


def start_commit(file2):
    """What the caller has said of the exchange already stays as it is."""
    said = struct.pack("=iIQQQQ", 1, 2, 3, 4, 5, 6)
    told = bytes(fcntl.ioctl(file2, START_COMMIT, said + bytes(48)))
    assert told[:40] == said, told[:40]
    return told[40:]


def commit_range(file1, file2, fresh, offset1=0, offset2=0, length=0, flags=0):
    fcntl.ioctl(file2, COMMIT_RANGE, struct.pack("=iIQQQQ", file1, 0, offset1, offset2, length, flags) + fresh)


def fallocate(file, mode, offset, length):
    if libc.fallocate(file, mode, ctypes.c_long(offset), ctypes.c_long(length)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def refused(number, function, *arguments, **more):
    try:
        function(*arguments, **more)
    except OSError as error:
        if error.errno == number:
            return
        raise
    raise AssertionError(f"not refused: {arguments} {more}")


def make(path, text=b"", flags=os.O_RDWR | os.O_CREAT | os.O_TRUNC):
    file = os.open(path, flags, 0o644)
    if text:
        assert os.pwrite(file, text, 0) == len(text)
    return file


def whole(file):
    return os.pread(file, os.fstat(file).st_size, 0)


def drop_caches():
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("3")


def blocks(letters):
    return b"".join(bytes([ord(letter)]) * BLOCK for letter in letters)


# ---- rules ----

def rules(folder):
    a, b = make(f"{folder}/a", blocks("abcd") + b"e" * 10), make(f"{folder}/b", blocks("ABCDEFG") + b"H" * 10)
    exchange(a, b, BLOCK, 2 * BLOCK, 2 * BLOCK)
    assert whole(a) == blocks("aCDd") + b"e" * 10 and whole(b) == blocks("ABbcEFG") + b"H" * 10
    exchange(a, b, 4 * BLOCK, 7 * BLOCK, 10)
    assert whole(a) == blocks("aCDd") + b"H" * 10
    before = os.fstat(a), os.fstat(b)
    exchange(a, b, flags=TO_EOF | DRY_RUN)
    assert (os.fstat(a), os.fstat(b)) == before
    time.sleep(0.02)
    exchange(a, b, flags=TO_EOF | DSYNC)
    assert whole(b) == blocks("aCDd") + b"H" * 10 and whole(a) == blocks("ABbcEFG") + b"e" * 10
    assert os.fstat(a).st_mtime > before[0].st_mtime and os.fstat(b).st_ctime > before[1].st_ctime
    drop_caches()
    assert whole(b) == blocks("aCDd") + b"H" * 10 and whole(a) == blocks("ABbcEFG") + b"e" * 10
    exchange(a, a, 0, 3 * BLOCK, 2 * BLOCK)
    assert whole(a) == blocks("cEbABFG") + b"e" * 10
    # Inline, and empty.
    small, empty = make(f"{folder}/small", b"small"), make(f"{folder}/empty")
    exchange(small, empty, flags=TO_EOF)
    assert (whole(small), whole(empty)) == (b"", b"small")
    exchange(a, empty, flags=TO_EOF)
    assert whole(a) == b"small" and whole(empty) == blocks("cEbABFG") + b"e" * 10
    # Only what was written.
    holes = make(f"{folder}/holes")
    os.ftruncate(holes, 5 * BLOCK)
    os.pwrite(holes, blocks("x"), BLOCK)
    fallocate(holes, 0, 3 * BLOCK, BLOCK)
    exchange(holes, empty, length=5 * BLOCK, flags=FILE1_WRITTEN)
    assert whole(empty) == blocks("cxbABFG") + b"e" * 10 and whole(holes) == blocks("\0E\0\0\0")
    # A setuid file is none any more.
    os.fchmod(holes, 0o4755)
    os.fchown(holes, 1000, 1000)
    os.fchmod(holes, 0o4755)
    child = os.fork()
    if not child:
        os.setgid(1000)
        os.setuid(1000)
        exchange(holes, holes, 0, BLOCK, BLOCK)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert not os.fstat(holes).st_mode & 0o4000


def refusals(folder):
    a, b = make(f"{folder}/a", blocks("abcd")), make(f"{folder}/b", blocks("ABCD"))
    refused(errno.EINVAL, exchange, a, b, 1, 0, BLOCK)
    refused(errno.EINVAL, exchange, a, b, 0, 0, BLOCK + 1)
    refused(errno.EINVAL, exchange, a, b, 0, 0, 5 * BLOCK)
    refused(errno.EINVAL, exchange, a, b, 0, 0, BLOCK, pad=1)
    refused(errno.EINVAL, exchange, a, b, 0, 0, BLOCK, flags=16)
    refused(errno.EINVAL, exchange, a, a, 0, BLOCK, 2 * BLOCK)
    refused(errno.EINVAL, exchange, a, b, 0, 0, 2**64 - 1)
    refused(errno.EBADF, exchange, 999, b, 0, 0, BLOCK)
    refused(errno.EBADF, exchange, a, os.open(f"{folder}/b", os.O_RDONLY), 0, 0, BLOCK)
    refused(errno.EBADF, exchange, os.open(f"{folder}/a", os.O_WRONLY), b, 0, 0, BLOCK)
    refused(errno.EBADF, exchange, os.open(f"{folder}/a", os.O_RDWR | os.O_APPEND), b, 0, 0, BLOCK)
    refused(errno.EISDIR, exchange, os.open(folder, os.O_RDONLY), b, 0, 0, BLOCK)
    refused(errno.EXDEV, exchange, make("/tmp/other", blocks("a")), b, 0, 0, BLOCK)
    os.system(f"chattr +i {folder}/a")
    refused(errno.EPERM, exchange, a, b, 0, 0, BLOCK)
    refused(errno.EPERM, exchange, b, a, 0, 0, BLOCK)
    os.system(f"chattr -i {folder}/a")
    for offset, length in (1, BLOCK), (0, 100), (3 * BLOCK, BLOCK), (0, 4 * BLOCK):
        refused(errno.EINVAL, fallocate, a, COLLAPSE, offset, length)
    for offset, length in (1, BLOCK), (0, 100), (4 * BLOCK, BLOCK):
        refused(errno.EINVAL, fallocate, a, INSERT, offset, length)
    refused(errno.EFBIG, fallocate, a, INSERT, 0, 2**63 - BLOCK)
    swap = make(f"{folder}/swap", bytes(1 << 20))
    if not os.system(f"chmod 600 {folder}/swap && mkswap {folder}/swap >/dev/null && swapon {folder}/swap"):
        refused(errno.ETXTBSY, exchange, a, swap, 0, 0, BLOCK)
        refused(errno.ETXTBSY, fallocate, swap, COLLAPSE, 0, BLOCK)
        os.system(f"swapoff {folder}/swap")
    assert whole(a) == blocks("abcd") and whole(b) == blocks("ABCD")


def freshness(folder):
    a, b = make(f"{folder}/a", blocks("abcd")), make(f"{folder}/b", blocks("ABCD"))
    fresh = start_commit(b)
    commit_range(a, b, fresh, length=BLOCK)
    assert whole(b) == blocks("aBCD")
    refused(errno.EBUSY, commit_range, a, b, fresh, length=BLOCK)
    fresh = start_commit(b)
    os.sync()
    drop_caches()
    commit_range(a, b, fresh, length=BLOCK)
    # What is stored through a page that was writable before START_COMMIT counts, too.
    with mmap.mmap(b, 4 * BLOCK) as mapped:
        mapped[0] = 1
        fresh = start_commit(b)
        mapped[1] = 1
        refused(errno.EBUSY, commit_range, a, b, fresh, length=BLOCK)
        fresh = start_commit(b)
        assert mapped[1] == 1
        commit_range(a, b, fresh, length=BLOCK)
        assert mapped[:4] == b"aaaa"
    refused(errno.EBUSY, commit_range, a, b, start_commit(a), length=BLOCK)
    freshness_and_privileges(a, b)


class Storer:
    """A child that stores to a page through a mapping of its own, all the time or when it is told to."""

    PAUSED, RUNNING, ONCE = 0, 1, 2

    def __init__(self, file):
        self.shared = mmap.mmap(-1, 2)      # what it is to do, what it does
        self.child = os.fork()
        if not self.child:
            with mmap.mmap(file, BLOCK) as mapped:
                self.work(mapped)

    def work(self, mapped):
        number = 0
        while True:
            told = self.shared[0]
            if told != self.PAUSED:
                number += 1
                mapped[:8] = struct.pack("Q", number)
            if told == self.ONCE:
                self.shared[0] = told = self.PAUSED
            self.shared[1] = told

    def tell(self, what):
        """Returns when it does that, or has done it."""
        self.shared[0] = what
        while self.shared[0] == self.ONCE or self.shared[1] != self.shared[0]:
            time.sleep(0.001)

    def end(self):
        os.kill(self.child, signal.SIGKILL)
        os.waitpid(self.child, 0)


def stored_meanwhile(folder):
    """Who stores while START_COMMIT goes on, and once more when it is over, has changed the file: his page may be writable since."""
    a, b = make(f"{folder}/a", blocks("abcd")), make(f"{folder}/b", blocks("ABCD"))
    storer = Storer(b)
    try:
        for _ in range(50):
            storer.tell(storer.RUNNING)
            fresh = start_commit(b)
            storer.tell(storer.PAUSED)
            os.pwrite(a, whole(b), 0)
            storer.tell(storer.ONCE)
            refused(errno.EBUSY, commit_range, a, b, fresh, length=BLOCK)
    finally:
        storer.end()
    commit_range(a, b, start_commit(b), length=BLOCK)


def privileges(file):
    return "security.capability" in os.listxattr(file), bool(os.fstat(file).st_mode & 0o4000)


def give_privileges(*files):
    """What a file loses when somebody changes it who is not root."""
    for file in files:
        os.fchown(file, 1000, 1000)
        os.fchmod(file, 0o4755)
        os.setxattr(file, "security.capability", CAPABILITY)
        assert privileges(file) == (True, True)


def as_user(function, *arguments, **more):
    """0, or the number of its error."""
    child = os.fork()
    if not child:
        os.setgid(1000)
        os.setuid(1000)
        try:
            function(*arguments, **more)
        except OSError as error:
            os._exit(error.errno)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def freshness_and_privileges(a, b):
    """They go with the exchange, not before it: refused, it has changed nothing; and that they go makes nothing stale."""
    stale = start_commit(b)
    give_privileges(a, b)
    fresh = start_commit(b)
    text, before = (whole(a), whole(b)), [os.fstat(file).st_ctime_ns for file in (a, b)]
    assert as_user(commit_range, a, b, stale, length=BLOCK) == errno.EBUSY
    assert as_user(commit_range, a, b, fresh, offset1=1, length=BLOCK) == errno.EINVAL
    assert as_user(commit_range, a, b, fresh, length=BLOCK, flags=DRY_RUN) == 0
    assert as_user(exchange, a, b, length=100 * BLOCK) == errno.EINVAL
    assert privileges(a) == privileges(b) == (True, True)
    assert [os.fstat(file).st_ctime_ns for file in (a, b)] == before and start_commit(b) == fresh
    assert as_user(commit_range, a, b, fresh, length=BLOCK) == 0
    assert (whole(a), whole(b)) == (text[1][:BLOCK] + text[0][BLOCK:], text[0][:BLOCK] + text[1][BLOCK:])
    assert privileges(a) == privileges(b) == (False, False)
    give_privileges(b)
    assert as_user(exchange, b, b, 0, BLOCK, BLOCK) == 0
    assert privileges(b) == (False, False)


def scatter(path, seed):
    """Overwrites every tenth block, more or less."""
    random.seed(int(seed))
    file = os.open(path, os.O_RDWR)
    for block in range(os.fstat(file).st_size // BLOCK):
        if not random.randrange(10):
            os.pwrite(file, random.randbytes(BLOCK), block * BLOCK)


def many_pieces(path, count):
    """So many blocks, of which each lies elsewhere than the one before: every other one is overwritten, and so moves."""
    file, text, count = make(path), random.randbytes(64 * BLOCK), int(count)
    for block in range(0, count, 64):
        os.pwrite(file, text, block * BLOCK)
    os.sync()
    for block in range(1, count, 2):
        os.pwrite(file, text[block % 64 * BLOCK:][:BLOCK], block * BLOCK)
    os.sync()


# ---- beside others ----

PAGES = 64


def exchange_again_and_again(files, seconds):
    done = busy = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        first = random.randrange(PAGES)
        count = random.randrange(1, PAGES - first + 1)
        try:
            if random.randrange(3):
                exchange(*files, first * BLOCK, first * BLOCK, count * BLOCK)
            else:
                exchange(*files, flags=TO_EOF)
            done += 1
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            busy += 1
    return done, busy


def beside(folder, how):
    """
    Somebody writes numbers into the pages of file 1, each higher than the one before.  The last that he wrote to a page is
    there, in one file or the other, whatever was exchanged meanwhile: nothing is written over it but by an exchange.
    """
    files = [make(f"{folder}/one", bytes(PAGES * BLOCK)), make(f"{folder}/two", bytes(PAGES * BLOCK))]
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        write_numbers(f"{folder}/one", how, tell)
    os.close(tell)
    done, busy = exchange_again_and_again(files, 12)
    os.kill(child, signal.SIGTERM)
    with os.fdopen(told, "rb") as pipe:
        last = struct.unpack(f"{PAGES}Q", pipe.read())
    assert os.waitpid(child, 0)[1] == 0
    print(f"{done} exchanges, {busy} times busy, {max(last)} writes")
    assert done > 5 and max(last) > 5
    for _ in range(2):
        for page in range(PAGES):
            found = [struct.unpack("QQ", os.pread(file, 16, page * BLOCK)) for file in files]
            assert max(found)[0] == last[page], (page, found, last[page])
            assert all(number == again for number, again in found), (page, found)
        os.sync()
        drop_caches()


def write_numbers(path, how, tell):
    random.seed(1)
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    file = os.open(path, os.O_RDWR | (os.O_DIRECT if how == "direct" else 0))
    mapped = mmap.mmap(file, PAGES * BLOCK)
    buffer = mmap.mmap(-1, BLOCK)
    last, number = [0] * PAGES, 0
    while not stop:
        number += 1
        page = random.randrange(PAGES)
        if how == "mmap":
            mapped[page * BLOCK:page * BLOCK + 16] = struct.pack("QQ", number, number)
        else:
            buffer[:16] = struct.pack("QQ", number, number)
            os.pwrite(file, buffer, page * BLOCK)
            os.preadv(file, [buffer], random.randrange(PAGES) * BLOCK)
        last[page] = number
    os.write(tell, struct.pack(f"{PAGES}Q", *last))
    os._exit(0)


# ---- a model ----

class Model:
    """Two files, and what they have to hold."""

    MOST = 40 * BLOCK

    def __init__(self, folder):
        self.files = [make(f"{folder}/{name}") for name in ("x", "y")]
        self.bytes = [bytearray(), bytearray()]

    def place(self, i):
        offset = random.randrange(self.MOST)
        return offset, random.randrange(1, max(2, min(self.MOST - offset, 60000)))

    def grow(self, i, size):
        self.bytes[i].extend(bytes(max(size - len(self.bytes[i]), 0)))

    def write(self, i):
        offset, length = self.place(i)
        text = random.randbytes(length)
        os.pwrite(self.files[i], text, offset)
        self.grow(i, offset + length)
        self.bytes[i][offset:offset + length] = text

    def store(self, i):
        size = len(self.bytes[i])
        if not size:
            return
        with mmap.mmap(self.files[i], size) as mapped:
            for _ in range(5):
                at = random.randrange(size)
                mapped[at] = self.bytes[i][at] = random.randrange(256)

    def read(self, i):
        offset, length = self.place(i)
        assert os.pread(self.files[i], length, offset) == self.bytes[i][offset:offset + length], (i, offset, length)

    def truncate(self, i):
        size = random.randrange(self.MOST)
        os.ftruncate(self.files[i], size)
        self.grow(i, size)
        del self.bytes[i][size:]

    def punch(self, i):
        offset, length = self.place(i)
        mode = random.choice((PUNCH | KEEP_SIZE, ZERO, KEEP_SIZE, 0))
        fallocate(self.files[i], mode, offset, length)
        if not mode & KEEP_SIZE:
            self.grow(i, offset + length)
        if mode & (PUNCH | ZERO):
            end = min(offset + length, len(self.bytes[i]))
            self.bytes[i][offset:end] = bytes(max(end - offset, 0))

    def collapse(self, i):
        size = len(self.bytes[i])
        if size <= BLOCK:
            return
        offset = random.randrange(size // BLOCK) * BLOCK
        length = random.randrange(1, 5) * BLOCK
        if offset + length < size:
            fallocate(self.files[i], COLLAPSE, offset, length)
            del self.bytes[i][offset:offset + length]

    def insert(self, i):
        size = len(self.bytes[i])
        if not size or size > self.MOST:
            return
        offset = random.randrange((size - 1) // BLOCK + 1) * BLOCK
        length = random.randrange(1, 5) * BLOCK
        fallocate(self.files[i], INSERT, offset, length)
        self.bytes[i][offset:offset] = bytes(length)

    def exchange(self, i):
        a, b = self.bytes
        if random.randrange(2):
            at = [random.randrange(len(text) // BLOCK + 1) * BLOCK for text in (a, b)]
            exchange(*self.files, *at, flags=TO_EOF)
            a[at[0]:], b[at[1]:] = b[at[1]:], a[at[0]:]
            return
        most = min(len(a), len(b)) // BLOCK
        if not most:
            return
        count = random.randrange(1, most + 1)
        one, two = (random.randrange(len(text) // BLOCK - count + 1) * BLOCK for text in (a, b))
        length = count * BLOCK
        exchange(*self.files, one, two, length)
        a[one:one + length], b[two:two + length] = b[two:two + length], a[one:one + length]

    def settle(self, i):
        random.choice((os.sync, drop_caches, lambda: os.fsync(self.files[i])))()

    def look(self):
        for file, text in zip(self.files, self.bytes):
            assert os.fstat(file).st_size == len(text)
            assert os.pread(file, len(text) + 1, 0) == text


def model(folder, seed):
    random.seed(int(seed))
    both = Model(folder)
    steps = [both.write, both.write, both.store, both.read, both.read, both.truncate, both.punch, both.collapse, both.insert,
             both.exchange, both.exchange, both.settle]
    for _ in range(1500):
        random.choice(steps)(random.randrange(2))
        if not random.randrange(10):
            both.look()
    drop_caches()
    both.look()
    os.sync()
    drop_caches()
    both.look()


# ---- direct reads that fail ----

FEW, SECTORS = 16, BLOCK // 512


def place_of(file, block):
    """Its address on the device, in sectors."""
    request = bytearray(struct.pack("=QQIIII", block * BLOCK, BLOCK, 0, 0, 1, 0) + bytes(56))
    fcntl.ioctl(file, 0xC020660B, request)
    logical, physical = struct.unpack_from("=QQ", request, 32)
    return (physical + block * BLOCK - logical) // 512


def make_failing(folder):
    """Two files, and the addresses of their last blocks."""
    places = []
    for name in "ab":
        file = os.open(f"{folder}/{name}", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.pwrite(file, name.encode() * (FEW * BLOCK), 0)
        os.fsync(file)
        places.append(place_of(file, FEW - 1))
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    print(*sorted(places))


def failing(folder):
    """
    A direct read of which a part fails reads block by block by way of the cache, and from this slow device that lasts.  What it
    brings there is not what another file has by then.
    """
    def read(name):
        if os.fork():
            return
        file = os.open(f"{folder}/{name}", os.O_RDONLY | os.O_DIRECT)
        refused(errno.EIO, os.preadv, file, [mmap.mmap(-1, FEW * BLOCK)], 0)
        os._exit(0)

    a, b = (os.open(f"{folder}/{name}", os.O_RDWR) for name in "ab")
    read("b")
    time.sleep(0.3)
    if not os.fork():
        exchange(a, b, 0, 0, (FEW - 1) * BLOCK)
        os._exit(0)
    time.sleep(0.3)
    read("a")
    assert all(os.wait()[1] == 0 for _ in range(3))
    for file, text in ((a, b"b"), (b, b"a")):
        found = os.pread(file, (FEW - 1) * BLOCK, 0)
        stale = [n for n in range(FEW - 1) if found[n * BLOCK:(n + 1) * BLOCK] != text * BLOCK]
        assert not stale, f"blocks {stale} are what they were before the exchange"


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
