# SPDX-License-Identifier: GPL-2.0-or-later
"""tux3 tune: label and quotas of volumes that are there already, of images and mounted."""
import json
import os
import subprocess

import pytest

import tools_helpers

BLOCK = 4096


def tuned(run, path, *arguments):
    return json.loads(run("tux3", "tune", path, *arguments, "--json").stdout)


def usage(run, path):
    return {(line["type"], line["id"]): (line["bytes"], line["inodes"])
            for line in json.loads(run("tux3", "quota", path, "--json").stdout)}


def fill(folder):
    """Files of three users and two groups; how many each has, and how many blocks."""
    use = {}
    for n in range(60):
        file = f"{folder}/file-{n}"
        blocks = -(n * 1000 // -BLOCK)
        with open(file, "wb") as out:
            out.write(b"x" * n * 1000)
        os.chown(file, 1000 + n % 3, 2000 + n % 2)
        for owner in (("user", 1000 + n % 3), ("group", 2000 + n % 2)):
            used, inodes = use.get(owner, (0, 0))
            use[owner] = used + blocks * BLOCK, inodes + 1
    return use


def test_quota_on_and_off(run, mkfs, mount, fsck):
    path = mkfs("64M")
    mounted = mount(path)
    use = fill(mounted.path)
    mounted.unmount()
    assert tuned(run, path) == {"label": "", "quota": False}
    assert tuned(run, path, "--quota", "on") == {"label": "", "quota": True}
    fsck(path)
    found = usage(run, path)
    assert {owner: found.get(owner) for owner in use} == use
    assert found["user", 0] == (0, 1)
    assert tuned(run, path, "-q", "on") == {"label": "", "quota": True}
    run("tux3", "quota", path, "user", 1001, "--inodes-hard", 20)
    run("tux3", "quota", path, "user", "--grace", 60)
    mounted = mount(path)
    assert os.stat(f"{mounted.path}/file-59").st_size == 59000
    os.unlink(f"{mounted.path}/file-58")
    os.sync()
    assert usage(run, mounted.path)["user", 1001][1] == 19
    mounted.unmount()
    fsck(path)
    assert tuned(run, path, "--quota", "off") == {"label": "", "quota": False}
    fsck(path)
    done = run("tux3", "quota", path, status=1)
    assert "tune --quota on" in done.stderr
    # Limits are forgotten, usage is counted anew.
    assert tuned(run, path, "--quota", "on") == {"label": "", "quota": True}
    fsck(path)
    found = {(line["type"], line["id"]): line for line in json.loads(run("tux3", "quota", path, "--json").stdout)}
    assert found["user", 1001]["inodes_hard"] == 0 and found["user", 1001]["inodes"] == 19
    assert found["user", 0]["bytes_grace"] == 604800


def test_mounted(run, mkfs, mount):
    path = mkfs("64M")
    mounted = mount(path)
    done = run("tux3", "tune", mounted.path, "--quota", "on", status=1)
    assert "unmount it" in done.stderr
    done = run("tux3", "tune", path, "--quota", "on", status=1)
    assert "in use" in done.stderr
    assert tuned(run, mounted.path) == {"label": "", "quota": False}
    assert tuned(run, mounted.path, "--label", "while mounted") == {"label": "while mounted", "quota": False}
    assert run("tux3", "tune", mounted.path).stdout == 'label "while mounted" quota false\n'
    mounted.unmount()
    assert tuned(run, path) == {"label": "while mounted", "quota": False}


def test_label(run, mkfs):
    path = mkfs("64M", "-L", "first")
    assert tuned(run, path, "-L", "sécond") == {"label": "sécond", "quota": False}
    assert run("tux3", "tune", path).stdout == 'label "sécond" quota false\n'
    assert tuned(run, path, "-L", "", "--quota", "on") == {"label": "", "quota": True}
    run("fsck.tux3", path)


@pytest.mark.parametrize("arguments,says", [
    (["--label", "x" * 65], "64 bytes"), (["--label", "a\nb"], "control characters"), (["--quota", "yes"], "neither on nor off"),
    (["other"], "One volume"),
])
def test_refused(run, mkfs, arguments, says):
    path = mkfs("64M")
    before = path.read_bytes()
    assert says in run("tux3", "tune", path, *arguments, status=16).stderr
    assert path.read_bytes() == before


def test_no_volume(run, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(bytes(1 << 20))
    for arguments in (["--quota", "on"], ["--label", "x"], []):
        assert "no Tux3 volume" in run("tux3", "tune", file, *arguments, status=1).stderr
    assert file.read_bytes() == bytes(1 << 20)
    assert "Which image" in run("tux3", "tune", status=16).stderr


def test_others_are_left_alone(run, build, tmp_path):
    """Other filesystems have labels, too, that are changed by the same ioctl."""
    image, folder = tmp_path / "ext4.img", tmp_path / "ext4"
    folder.mkdir()
    with open(image, "wb") as file:
        file.truncate(32 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-L", "theirs", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, folder], check=True)
    try:
        for arguments in (["--label", "ours"], ["--quota", "on"]):
            assert "mounted Tux3 volume" in run("tux3", "tune", folder, *arguments, status=1).stderr
    finally:
        subprocess.run(["umount", folder], check=True)
    assert subprocess.run(["e2label", image], capture_output=True, text=True, check=True).stdout == "theirs\n"


def test_damaged(run, mkfs, mount):
    """With a tree that is damaged nothing is switched, nor anything else changed."""
    path = mkfs("64M")
    mounted = mount(path)
    fill(mounted.path)
    mounted.unmount()
    data = bytearray(path.read_bytes())
    nodes = [at for at in range(0, len(data), BLOCK) if b"file-7" in data[at:at + BLOCK]]
    assert nodes
    for at in nodes:
        data[at + 200] ^= 1
    path.write_bytes(data)
    assert "tree node" in run("tux3", "tune", path, "--quota", "on", status=1).stderr
    assert path.read_bytes() == data


def test_what_is_refused_takes_the_label_along(run, build, mkfs):
    path = mkfs("64M")
    tools_helpers.fill(build, path)
    leaf = json.loads(run("tux3", "show", "--json", path, "nodes").stdout)[-1]["addr"]
    tools_helpers.edit(path, leaf * BLOCK + 1000, 1, lambda data: data.__setitem__(0, data[0] ^ 1))
    data = path.read_bytes()
    assert "quotas cannot be changed: the volume has problems" in run("tux3", "tune", path, "--label", "new", "--quota", "on", status=1).stderr
    assert path.read_bytes() == data
