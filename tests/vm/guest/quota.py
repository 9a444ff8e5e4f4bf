# SPDX-License-Identifier: GPL-2.0-or-later
"""Quotas of the module, by system calls: quota.py DEVICE MOUNTPOINT TEST.  The volume has quotas and is mounted, we are root."""
import ctypes
import errno
import fcntl
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
import time

DEVICE, MNT = sys.argv[1:3]
LIBC = ctypes.CDLL(None, use_errno=True)
BLOCK = os.statvfs(MNT).f_bsize
USER, GROUP, PROJECT = 0, 1, 2
Q_SYNC, Q_GETFMT, Q_GETINFO, Q_SETINFO, Q_GETQUOTA, Q_SETQUOTA, Q_GETNEXTQUOTA = (0x800000 + n for n in (1, 4, 5, 6, 7, 8, 9))
DQBLK = struct.Struct("<8Q2I")  # hard and soft KiB, bytes used, hard and soft inodes, inodes used, times, valid, id
QIF_LIMITS, QIF_BTIME = 5, 16
DQINFO = struct.Struct("<2Q2I")
FSXATTR = struct.Struct("<5I8x")
FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR = 0x801C581F, 0x401C5820
PROJINHERIT = 0x200
RWF_NOWAIT = 8


def quotactl(command, kind, who=0, data=b"", device=DEVICE):
    buffer = ctypes.create_string_buffer(data, DQBLK.size)
    if LIBC.quotactl(command << 8 | kind, device.encode(), who, buffer):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return buffer.raw


def limit(kind, who, blocks=0, inodes=0, soft=0):
    kib = BLOCK // 1024
    quotactl(Q_SETQUOTA, kind, who, DQBLK.pack(blocks * kib, soft * kib, 0, inodes, 0, 0, 0, 0, QIF_LIMITS, 0))


def used(kind, who):
    """Blocks and inodes."""
    quotactl(Q_SYNC, kind)
    found = DQBLK.unpack(quotactl(Q_GETQUOTA, kind, who))
    return found[2] // BLOCK, found[5]


def expect(found, wanted):
    assert found == wanted, f"{found} instead of {wanted}"


def refused(function, *args):
    try:
        function(*args)
    except OSError as error:
        expect(errno.errorcode[error.errno], "EDQUOT")
    else:
        raise AssertionError("it was not refused")


def by_user(who, function, *args):
    """In a process of that user; its exit status, or minus the signal."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            os.setgroups([])
            os.setresgid(who, who, who)
            os.setresuid(who, who, who)
            function(*args)
            status = 0
        except BaseException as error:  # told here: nobody above us is to go on
            print(f"user {who}: {error!r}", flush=True)
        os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def folder(name):
    path = f"{MNT}/{name}"
    os.mkdir(path)
    os.chmod(path, 0o777)
    return path


OPEN = {}


def open_fd(path):
    if path not in OPEN:
        OPEN[path] = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    return OPEN[path]


def fill(path, step=1):
    """Single blocks until that is refused: how many there were."""
    count = 0
    while True:
        try:
            expect(os.pwrite(open_fd(path), b"x" * BLOCK, count * step * BLOCK), BLOCK)
        except OSError as error:
            expect(errno.errorcode[error.errno], "EDQUOT")
            return count
        count += 1


ATTRIBUTE = struct.Struct("<2H")
GENL = struct.Struct("<I2H2I2BH")  # length, type, flags, sequence, port; command, version
CTRL, CTRL_GETFAMILY, CTRL_ID, CTRL_NAME, CTRL_GROUPS, CTRL_GROUP_ID = 0x10, 3, 1, 2, 7, 2
KIND, EXCESS_ID, WARNING, MAJOR, MINOR = 1, 2, 3, 4, 5
IHARDWARN, ISOFTWARN, BHARDWARN, BSOFTLONGWARN, BSOFTWARN = 1, 3, 4, 5, 6
IHARDBELOW, ISOFTBELOW, BHARDBELOW, BSOFTBELOW = 7, 8, 9, 10


def attributes(data):
    found = {}
    while len(data) >= ATTRIBUTE.size:
        length, number = ATTRIBUTE.unpack_from(data)
        found[number] = data[ATTRIBUTE.size:length]
        data = data[(length + 3) & ~3:]
    return found


def number(value):
    return int.from_bytes(value, "little")


def listener():
    """A socket that gets what is said of quotas: generic netlink, family VFS_DQUOT, its only group."""
    messages = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16)  # NETLINK_GENERIC
    messages.bind((0, 0))
    name = b"VFS_DQUOT\0"
    request = ATTRIBUTE.pack(ATTRIBUTE.size + len(name), CTRL_NAME) + name + bytes(-len(name) % 4)
    messages.send(GENL.pack(GENL.size + len(request), CTRL, 1, 1, 0, CTRL_GETFAMILY, 1, 0) + request)
    family = attributes(messages.recv(65536)[GENL.size:])
    group = attributes(attributes(family[CTRL_GROUPS])[1])
    messages.setsockopt(270, 1, number(group[CTRL_GROUP_ID]))  # SOL_NETLINK, NETLINK_ADD_MEMBERSHIP
    messages.settimeout(0.5)
    return messages


def told(messages, kind, who):
    """What was said of one since the last time, all of it durable."""
    os.sync()
    found = []
    device = os.stat(MNT).st_dev
    try:
        while True:
            message = {key: number(value) for key, value in attributes(messages.recv(65536)[GENL.size:]).items()}
            if (message[KIND], message[EXCESS_ID]) == (kind, who):
                expect((message[MAJOR], message[MINOR]), (os.major(device), os.minor(device)))
                found.append(message[WARNING])
    except TimeoutError:
        return found


def test_netlink():
    path = folder("netlink")
    messages = listener()
    quotactl(Q_SETQUOTA, USER, 3100, DQBLK.pack(20 * BLOCK // 1024, 10 * BLOCK // 1024, 0, 4, 3, 0, 0, 0, QIF_LIMITS, 0))

    def write(count, at):
        return lambda: expect(os.pwrite(open_fd(f"{path}/file"), b"n" * count * BLOCK, at * BLOCK), count * BLOCK)

    expect(by_user(3100, write(10, 0)), 0)
    expect(told(messages, USER, 3100), [])
    expect(by_user(3100, write(1, 10)), 0)
    expect(told(messages, USER, 3100), [BSOFTWARN])
    expect(by_user(3100, write(9, 11)), 0)
    expect(told(messages, USER, 3100), [])
    expect(by_user(3100, lambda: refused(os.pwrite, open_fd(f"{path}/file"), b"n", 20 * BLOCK)), 0)
    expect(told(messages, USER, 3100), [BHARDWARN])
    expect(by_user(3100, os.truncate, f"{path}/file", 12 * BLOCK), 0)
    expect(told(messages, USER, 3100), [BHARDBELOW])
    quotactl(Q_SETQUOTA, USER, 3100, DQBLK.pack(0, 0, 0, 0, 0, 0, int(time.time()) - 1, 0, QIF_BTIME, 0))  # its grace has ended
    expect(by_user(3100, lambda: refused(os.pwrite, open_fd(f"{path}/file"), b"n", 15 * BLOCK)), 0)
    expect(told(messages, USER, 3100), [BSOFTLONGWARN])
    expect(by_user(3100, os.truncate, f"{path}/file", 0), 0)
    expect(told(messages, USER, 3100), [BSOFTBELOW])
    names = [f"{path}/{n}" for n in range(3)]
    expect(by_user(3100, lambda: [os.mknod(name) for name in names]), 0)
    expect(told(messages, USER, 3100), [ISOFTWARN])
    expect(by_user(3100, lambda: refused(os.mknod, f"{path}/more")), 0)
    expect(told(messages, USER, 3100), [IHARDWARN])
    expect(by_user(3100, os.unlink, names[0]), 0)
    expect(told(messages, USER, 3100), [ISOFTBELOW, IHARDBELOW])
    messages.close()


def test_state():
    for kind in (USER, GROUP, PROJECT):
        expect(struct.unpack_from("<I", quotactl(Q_GETFMT, kind))[0], 4)
        expect(DQINFO.unpack_from(quotactl(Q_GETINFO, kind))[:3], (604800, 604800, 1 << 16))
    limit(PROJECT, 77, blocks=5)
    quotactl(Q_SYNC, PROJECT)
    expect(DQBLK.unpack(quotactl(Q_GETNEXTQUOTA, PROJECT, 1))[9], 77)
    limit(PROJECT, 77)
    with open("/proc/mounts", encoding="ascii") as mounts:
        assert any(f" {MNT} tux3 " in line and "usrquota,grpquota,prjquota" in line for line in mounts)


def hard(path):
    one, two = f"{path}/one", f"{path}/two"
    expect(fill(one, step=2), 50)
    for n in range(50):
        expect(os.pwrite(open_fd(one), b"y" * BLOCK, 2 * n * BLOCK), BLOCK)
    refused(os.pwrite, open_fd(one), b"z" * BLOCK, BLOCK)
    refused(os.posix_fallocate, open_fd(one), 0, 100 * BLOCK)
    refused(os.pwrite, open_fd(two), b"z" * BLOCK, 0)
    os.unlink(one)
    os.close(OPEN.pop(one))
    expect(os.pwrite(open_fd(two), b"z" * 60 * BLOCK, 0), 50 * BLOCK)
    os.ftruncate(open_fd(two), 40 * BLOCK)
    direct = os.open(f"{path}/direct", os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)
    memory = mmap.mmap(-1, 20 * BLOCK)
    expect(os.pwritev(direct, [memory], 0), 10 * BLOCK)
    try:
        os.pwritev(open_fd(two), [b"n" * BLOCK], 45 * BLOCK, RWF_NOWAIT)
    except OSError as error:
        expect(errno.errorcode[error.errno], "EAGAIN")
    os.fsync(direct)


def test_hard():
    path = folder("hard")
    limit(USER, 1000, blocks=50)
    expect(by_user(1000, hard, path), 0)
    expect(used(USER, 1000), (50, 2))
    # Root may exceed them.
    with open(f"{path}/two", "ab", buffering=0) as file:
        expect(file.write(b"r" * 3 * BLOCK), 3 * BLOCK)
    expect(used(USER, 1000)[0], 53)
    limit(USER, 1000)
    expect(by_user(1000, os.truncate, f"{path}/two", 0), 0)


def store(path, blocks):
    """One byte into each block of a mapping of a hole."""
    fd = open_fd(path)
    os.ftruncate(fd, 100 * BLOCK)
    memory = mmap.mmap(fd, 100 * BLOCK)
    signal.signal(signal.SIGBUS, signal.SIG_DFL)
    for n in range(blocks):
        memory[n * BLOCK] = 1
    for n in range(min(blocks, 20)):
        memory[n * BLOCK + 1] = 2
    os.fsync(fd)
    memory[7] = 3


def test_mapping():
    path = folder("mapping")
    limit(USER, 1001, blocks=20)
    expect(by_user(1001, store, f"{path}/file", 20), 0)
    expect(used(USER, 1001)[0], 20)
    expect(by_user(1001, store, f"{path}/file", 21), -signal.SIGBUS)
    expect(used(USER, 1001)[0], 20)
    os.sync()
    limit(USER, 1001)


def test_users():
    """Four at once, each with a limit; and a group that they share."""
    path = folder("users")
    users = range(2000, 2004)
    for who in users:
        limit(USER, who, blocks=60 + who - 2000, inodes=2)
    pids = []
    for who in users:
        pid = os.fork()
        if not pid:
            os._exit(0 if by_user(who, lambda: expect(fill(f"{path}/{who}", step=3), 60 + who - 2000)) == 0 else 1)
        pids.append(pid)
    for pid in pids:
        expect(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
    for who in users:
        expect(used(USER, who), (60 + who - 2000, 1))
        expect(by_user(who, lambda: os.mkdir(f"{path}/d{who}")), 0)
        expect(by_user(who, lambda: refused(os.symlink, "x", f"{path}/l{who}")), 0)


def test_grace():
    path = folder("grace")
    quotactl(Q_SETINFO, USER, 0, DQINFO.pack(1, 1, 0, 3))
    limit(USER, 3000, blocks=30, soft=10)
    expect(by_user(3000, lambda: expect(os.pwrite(open_fd(f"{path}/file"), b"g" * 12 * BLOCK, 0), 12 * BLOCK)), 0)
    os.sync()
    assert DQBLK.unpack(quotactl(Q_GETQUOTA, USER, 3000))[6]
    time.sleep(2.5)
    expect(by_user(3000, lambda: refused(os.pwrite, open_fd(f"{path}/file"), b"g" * BLOCK, 20 * BLOCK)), 0)
    expect(by_user(3000, lambda: expect(os.pwrite(open_fd(f"{path}/file"), b"h" * BLOCK, 0), BLOCK)), 0)
    expect(by_user(3000, os.truncate, f"{path}/file", 5 * BLOCK), 0)
    os.sync()
    expect(DQBLK.unpack(quotactl(Q_GETQUOTA, USER, 3000))[6], 0)
    limit(USER, 3001, soft=1)
    expect(by_user(3001, lambda: expect(os.pwrite(open_fd(f"{path}/late"), b"g" * 2 * BLOCK, 0), 2 * BLOCK)), 0)
    os.sync()
    quotactl(Q_SETQUOTA, USER, 3001, DQBLK.pack(0, 0, 0, 0, 0, 0, 5 << 32, 0, QIF_BTIME, 0))
    quotactl(Q_SETINFO, USER, 0, DQINFO.pack(604800, 604800, 0, 3))


def set_project(path, project, inherit):
    fd = os.open(path, os.O_RDONLY)
    flags = list(FSXATTR.unpack(fcntl.ioctl(fd, FS_IOC_FSGETXATTR, bytes(FSXATTR.size))))
    flags[0] |= PROJINHERIT if inherit else 0
    flags[3] = project
    fcntl.ioctl(fd, FS_IOC_FSSETXATTR, FSXATTR.pack(*flags))
    os.close(fd)


def test_project():
    path = folder("project")
    set_project(path, 42, True)
    limit(PROJECT, 42, blocks=40, inodes=3)
    expect(by_user(1000, lambda: expect(fill(f"{path}/file"), 40)), 0)
    room = os.statvfs(path)
    expect((room.f_blocks, room.f_bfree, room.f_files, room.f_ffree), (40, 0, 3, 1))
    assert os.statvfs(MNT).f_blocks > 1000
    limit(PROJECT, 42, blocks=40, inodes=3, soft=50)  # which never counts
    expect(os.statvfs(path).f_blocks, 40)
    expect(by_user(1001, lambda: os.mkdir(f"{path}/sub")), 0)
    expect(by_user(1001, lambda: refused(os.mkdir, f"{path}/more")), 0)
    expect(used(PROJECT, 42), (40, 3))


def test_owner():
    path = folder("owner")
    limit(GROUP, 100, blocks=10)
    file = f"{path}/file"
    expect(by_user(1000, lambda: expect(os.pwrite(open_fd(file), b"o" * 11 * BLOCK, 0), 11 * BLOCK)), 0)

    def give():
        refused(os.chown, file, -1, 100)
        os.truncate(file, 10 * BLOCK)
        os.chown(file, -1, 100)
        refused(os.pwrite, open_fd(file), b"o" * BLOCK, 30 * BLOCK)

    pid = os.fork()
    if not pid:
        os.setgroups([100])
        os.setresgid(1000, 1000, 1000)
        os.setresuid(1000, 1000, 1000)
        give()
        os._exit(0)
    expect(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
    expect(used(GROUP, 100), (10, 1))


def unnamed(path):
    """Files that go when they are closed: each time there is room for the next one at once."""
    for n in range(40):
        fd = os.open(path, os.O_TMPFILE | os.O_RDWR, 0o600)
        if n % 3:
            os.write(fd, b"t" * BLOCK)
        os.close(fd)
    for n in range(20):
        fd = os.open(f"{path}/name", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(fd, b"t" * 10 * BLOCK)
        if n % 2:
            os.fsync(fd)
        os.unlink(f"{path}/name")
        if n % 3:
            os.sync()
        if n % 5 == 3:
            os.write(fd, b"t" * 5 * BLOCK)
        os.close(fd)


def test_unnamed():
    path = folder("unnamed")
    limit(USER, 1007, blocks=20, inodes=1)
    expect(by_user(1007, unnamed, path), 0)
    os.sync()
    expect(used(USER, 1007), (0, 0))


def test_acl():
    """Files in a directory with a default ACL have theirs before they have a name."""
    path = folder("acl")
    subprocess.run(["setfacl", "-d", "-m", "u:1234:rwx", path], check=True)
    limit(USER, 1008, blocks=20, inodes=1)
    expect(by_user(1008, unnamed, path), 0)
    limit(USER, 1008, inodes=2)

    def beside_commits():
        for n in range(50):
            os.close(os.open(f"{path}/{n}", os.O_CREAT | os.O_EXCL, 0o644))
            refused(lambda: [os.mkdir(f"{path}/{n}-{more}") for more in range(2)])
            for name in os.listdir(path):
                (os.rmdir if os.path.isdir(f"{path}/{name}") else os.unlink)(f"{path}/{name}")

    syncs = subprocess.Popen(["sh", "-c", f"while sync -f {path}; do :; done"])
    expect(by_user(1008, beside_commits), 0)
    syncs.terminate()
    syncs.wait()
    expect(used(USER, 1008), (0, 0))


def test_frozen():
    """The volume is frozen."""
    quotactl(Q_SYNC, USER)


def test_noquota():
    """The volume is mounted with noquota."""
    limit(USER, 1000, blocks=1)
    expect(by_user(1000, lambda: expect(os.pwrite(open_fd(f"{MNT}/owner/more"), b"o" * 5 * BLOCK, 0), 5 * BLOCK)), 0)
    assert used(USER, 1000)[0] > 5
    expect(os.statvfs(f"{MNT}/project").f_blocks, os.statvfs(MNT).f_blocks)


def test_after():
    """It was unmounted and mounted again."""
    expect(by_user(1000, lambda: refused(os.pwrite, open_fd(f"{MNT}/owner/more"), b"o" * BLOCK, 9 * BLOCK)), 0)
    expect(used(PROJECT, 42), (40, 3))
    expect(by_user(1001, lambda: refused(os.mkdir, f"{MNT}/project/more")), 0)


globals()[f"test_{sys.argv[3]}"]()
