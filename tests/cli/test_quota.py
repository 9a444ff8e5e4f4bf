# SPDX-License-Identifier: GPL-2.0-or-later
"""tux3 quota, of images and of volumes that tux3-fuse has mounted; and that users are held to their limits there."""
import errno
import json
import os
import subprocess

import pytest

BLOCK = 4096


def told(run, path):
    return {(line["type"], line["id"]): line for line in json.loads(run("tux3", "quota", path, "--json").stdout)}


def as_user(who, path, blocks):
    """How many blocks a user can append to a file, at most so many; and the error."""
    code = f"""
import os, sys
os.setgroups([]); os.setresgid({who}, {who}, {who}); os.setresuid({who}, {who}, {who})
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
done, error = 0, 0
try:
    while done < {blocks}:
        done += os.write(fd, b"u" * {BLOCK}) // {BLOCK}
except OSError as e:
    error = e.errno
print(done, error)
"""
    done = subprocess.run(["python3", "-c", code, str(path)], capture_output=True, text=True, check=True)
    return tuple(int(word) for word in done.stdout.split())


def test_image(run, mkfs):
    path = mkfs("64M", "-O", "quota")
    run("tux3", "quota", path, "user", 1000, "--soft", "1M", "--hard", "10M", "--inodes-soft", 5, "--inodes-hard", 6)
    run("tux3", "quota", path, "project", 7, "--hard", 5000)
    run("tux3", "quota", path, "group", "--grace", 3600)
    found = told(run, path)
    assert found["user", 1000] == {"type": "user", "id": 1000, "bytes": 0, "bytes_soft": 1 << 20, "bytes_hard": 10 << 20,
                                   "bytes_time": 0, "inodes": 0, "inodes_soft": 5, "inodes_hard": 6, "inodes_time": 0}
    assert found["project", 7]["bytes_hard"] == 8192
    assert found["group", 0]["bytes_grace"] == 3600 and found["user", 0]["bytes_grace"] == 604800
    assert found["user", 0]["inodes"] == 1
    assert " 10 MiB " in run("tux3", "quota", path).stdout
    assert "never count" in run("tux3", "quota", path, "user", 1000, "--soft", "11M", status=16).stderr
    assert "never count" in run("tux3", "quota", path, "user", 1000, "--inodes-hard", 4, status=16).stderr
    assert told(run, path) == found
    run("tux3", "quota", path, "project", 7, "--hard", 0)
    assert ("project", 7) not in told(run, path)
    run("fsck.tux3", path)


@pytest.mark.parametrize("arguments,status,says", [
    (["user", 0, "--hard", "1M"], 1, "Id 0 has no limits"),
    (["user", "no-such-user", "--hard", "1M"], 16, "no user"),
    (["user", 1], 16, "Which limit"),
    (["user", "--hard", "1M"], 16, "for whom"),
    (["--hard", "1M"], 16, "for whom"),
    (["all", 1, "--hard", "1M"], 16, "neither"),
    (["user", 1, "--hard", "much"], 16, "no limit"),
    (["user", 1, "--hard", "1M", "--grace", "5"], 16, "all of a type"),
    (["user", "--grace", "soon"], 16, "number of seconds"),
    (["user", 1, "--soft", "2M", "--hard", "1M"], 16, "never count: the hard one is 1048576"),
    (["user", 1, "--inodes-soft", 7, "--inodes-hard", 6], 16, "never count: the hard one is 6"),
])
def test_refused(run, mkfs, arguments, status, says):
    path = mkfs("64M", "-O", "quota")
    done = run("tux3", "quota", path, *arguments, status=status)
    assert says in done.stderr


def test_without(run, mkfs, mount):
    path = mkfs("64M")
    done = run("tux3", "quota", path, status=1)
    assert "-O quota" in done.stderr and done.stdout == ""
    mounted = mount(path)
    for arguments in ([], ["user", 1000, "--hard", "1M"]):
        done = run("tux3", "quota", mounted.path, *arguments, status=1)
        assert "-O quota" in done.stderr and done.stdout == ""


def test_users_see_their_own(run, build, mkfs, mount):
    """Through FUSE; what others use and limits are root's business, and who is refused is told so."""
    path = mkfs("64M", "-O", "quota")
    mounted = mount(path)
    os.chmod(mounted.path, 0o777)
    for who in (1000, 1001):
        as_user(who, f"{mounted.path}/{who}", who - 997)
    run("tux3", "quota", mounted.path, "user", 1000, "--hard", "1M")

    def ask(*arguments, groups="1000,1001"):
        return subprocess.run(["setpriv", "--reuid", "1000", "--regid", "1000", "--groups", groups, str(build / "tux3"), "quota",
                               mounted.path, *arguments], capture_output=True, text=True)
    lines = {(line["type"], line["id"]): line for line in json.loads(ask("--json").stdout)}
    assert set(lines) == {("user", 1000), ("group", 1000), ("group", 1001)}
    assert (lines["user", 1000]["bytes"], lines["user", 1000]["bytes_hard"]) == (3 * BLOCK, 1 << 20)
    assert lines["group", 1001]["bytes"] == 4 * BLOCK
    lines = json.loads(ask("--json", groups="1000").stdout)
    assert [(line["type"], line["id"]) for line in lines] == [("user", 1000), ("group", 1000)]
    done = ask("user", "1000", "--hard", "2M")
    assert done.returncode == 1 and "only root" in done.stderr and "sudo" in done.stderr
    assert told(run, mounted.path)["user", 1000]["bytes_hard"] == 1 << 20
    mounted.unmount()


def test_others_are_left_alone(run, build, tmp_path):
    """Other filesystems have quotactl(2), too: what they count is not told, and limits are not set there."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for arguments in ([], ["user", 1000, "--hard", "1M"], ["--json"]):
        done = run("tux3", "quota", folder, *arguments, status=1)
        assert done.stdout == "" and "not on a mounted Tux3 volume" in done.stderr
    file = tmp_path / "file"
    file.write_bytes(bytes(9000))
    done = run("tux3", "quota", file, status=1)
    assert done.stdout == "" and f"{file}: there is no Tux3 volume" in done.stderr


def test_mounted(run, mkfs, mount, fsck):
    path = mkfs("64M", "-O", "quota")
    mounted = mount(path)
    os.chmod(mounted.path, 0o777)
    run("tux3", "quota", mounted.path, "user", 1000, "--hard", 20 * BLOCK, "--inodes-hard", 2)
    assert as_user(1000, f"{mounted.path}/file", 30) == (20, errno.EDQUOT)
    assert as_user(1001, f"{mounted.path}/other", 30) == (30, 0)
    with open(f"{mounted.path}/file", "ab", buffering=0) as file:
        assert file.write(b"r" * 2 * BLOCK) == 2 * BLOCK  # root may
    found = told(run, mounted.path)
    assert (found["user", 1000]["bytes"], found["user", 1000]["inodes"]) == (22 * BLOCK, 1)
    # What df shows of a directory for one project is what may be used there.
    os.mkdir(f"{mounted.path}/project")
    subprocess.run(["chattr", "-p", "7", "+P", f"{mounted.path}/project"], check=True)
    for limits in (["--soft", 30 * BLOCK], ["--hard", 40 * BLOCK]):
        run("tux3", "quota", mounted.path, "project", 7, *limits)
        assert os.statvfs(f"{mounted.path}/project").f_blocks == 30
    mounted.unmount()
    fsck(path)
    mounted = mount(path, "noquota")
    assert as_user(1000, f"{mounted.path}/file", 5) == (5, 0)
    assert os.statvfs(f"{mounted.path}/project").f_blocks == os.statvfs(mounted.path).f_blocks
    mounted.unmount()
