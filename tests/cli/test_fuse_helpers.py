# SPDX-License-Identifier: GPL-2.0-or-later
"""tux3-fuse as the helper of mount(8) and umount(8), as installed; its messages in syslog; a volume that stops.

mount(8) looks for helpers in /sbin only.  So these tests are scripts in a mount namespace of their own, in which /sbin
has ours too.
"""
import os
import shlex
import shutil
import socket
import subprocess
import threading

import pytest

HELPERS = ("mount.tux3", "mount.fuse.tux3", "mount.fuseblk.tux3", "umount.tux3", "umount.fuse.tux3")
NO_MODULE = "module" if any(line.split()[-1] == "tux3" for line in open("/proc/filesystems", encoding="ascii")) else ""


@pytest.fixture
def script(build, volume, tmp_path):
    """Runs a script of bash: $V the volume, $M a mount point, $B the programs.  Its output."""
    sbin, real, mnt = tmp_path / "sbin", tmp_path / "real", tmp_path / "mnt"
    for path in (sbin, real, mnt):
        path.mkdir()
    for name in os.listdir("/usr/sbin"):
        (sbin / name).symlink_to(real / name)
    for name in HELPERS:
        (sbin / name).unlink(missing_ok=True)
        (sbin / name).symlink_to(build / "tux3-fuse")

    def run(text, status=0, setup=""):
        words = {"V": volume, "M": mnt, "B": build, "T": tmp_path}
        before = "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in words.items())
        # libmount's table is not to be written to: it is that of the machine.
        before += "mkdir -p /run/mount\n"
        before += (f"mount --make-rprivate / && mount --bind /usr/sbin {real} && mount --bind {sbin} /usr/sbin "
                   "&& mount -t tmpfs tmpfs /run/mount || exit 99\n"
                   + setup + "set -e\n")
        done = subprocess.run(["unshare", "-m", "bash", "-c", before + text], capture_output=True, text=True, timeout=120)
        assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
        return done.stdout + done.stderr
    return run


@pytest.mark.parametrize("name", HELPERS)
def test_help(build, tmp_path, name):
    (tmp_path / name).symlink_to(build / "tux3-fuse")
    done = subprocess.run([tmp_path / name, "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: " + name.split(".")[0]) and name in done.stdout and not done.stderr
    wrong = subprocess.run([tmp_path / name], capture_output=True, text=True)
    assert wrong.returncode == 1 and wrong.stderr.startswith(f"{name}: expected")


@pytest.mark.parametrize("options", ["", "io_uring=off"])
def test_umount_waits(script, options):
    """A copy that is made at once is complete, ten times of ten."""
    script(f"""
for n in $(seq 10); do
	mount -t fuse.tux3 -o {options or "defaults"},age=60 $V $M
	head -c 3000000 /dev/urandom >$M/file$n
	sum=$(md5sum <$M/file$n)
	umount $M
	cp --sparse=always $V $T/copy
	$B/tux3-fuse -o ro $T/copy $M
	[ "$(md5sum <$M/file$n)" = "$sum" ]
	umount $M
	$B/fsck.tux3 -n $T/copy >/dev/null
	rm $T/copy
done
""")


def test_umount_by_the_source_and_lazily(script):
    script("""
mount -t fuse.tux3 -o age=60 $V $M && echo one >$M/f && umount $V && cp $V $T/copy
mount -t fuse.tux3 $T/copy $M && grep one $M/f && umount -l $M
! mountpoint $M && ! umount $M 2>/dev/null
""")


def test_umount_of_what_another_namespace_has_too(script):
    """The daemon goes on serving that, and umount does not wait for it."""
    script("""
mount -t fuse.tux3 -o age=60 $V $M
mkfifo $T/go
unshare -m --propagation private bash -c "echo >$T/go; read <$T/go; echo late >$M/f; umount -i $M" &
read <$T/go
timeout 60 umount $M
echo >$T/go
wait $!
mount -t fuse.tux3 $V $M && grep late $M/f && umount $M
""")


@pytest.mark.parametrize("force", ["", "-f"])
def test_umount_says_what_is_mounted_elsewhere(script, force):
    """And syncs what was written, so that a daemon that is killed then has lost nothing.  By force it asks no daemon, which may hang."""
    said = script(f"""
mkdir $T/else
mount -t fuse.tux3 -o age=3600,dirty=1G $V $M && mount --bind $M $T/else
echo safe >$M/f
umount {force} $M
! mountpoint -q $M
pid=$(pgrep -f "fuse.tux3 $V $M ") && kill -9 $pid || true
umount -i -l $T/else
mount -t fuse.tux3 $V $M
cat $M/f || echo lost
umount $M
""")
    assert ("still mounted elsewhere" in said and "is synced" in said) == (not force), said
    assert force or "safe" in said.split(), said


GENERIC = ["defaults,nofail,x-systemd.automount,_netdev,users,noexec,nosuid,nodev", "user_xattr,acl,errors=remount-ro,default_permissions",
           "discard,snapshot=16M,noacl,names=1000", "noatime,nodiratime", "relatime", "strictatime,lazytime", "sync,dirsync",
           "nosymfollow", "ro", "age=1,dirty=8M,cache=16M,data_cache=8M,threads=2,io_uring=off", "auto_unmount"]


WRONG_OPTIONS = [
    ("nonsense", "unknown mount option 'nonsense'"), ("nonsense=1", "unknown mount option 'nonsense=1'"),
    ("age", "mount option age needs a value: seconds from 0.001 to 3600"), ("cache", "mount option cache needs a value: a size"),
    ("age=x", "mount option age: 'x' is not a value it can take: seconds"), ("age=1e1", "mount option age: '1e1'"),
    ("dirty=3X", "mount option dirty: '3X' is not a value it can take: a size"), ("names=0", "mount option names: '0'"),
    ("threads=65", "a number from 1 to 64"), ("io_uring=perhaps", "auto, on or off"), ("norecovery=1", "norecovery takes no value"),
    ("writeback=1", "mount option writeback takes no value"), ("user_xattr=1", "mount option user_xattr takes no value"),
    ("errors=panic", "mount option errors: 'panic' cannot be chosen: it is always remount-ro")]


@pytest.mark.parametrize("kind", ["fuse.tux3", pytest.param("tux3", marks=pytest.mark.skipif(
    bool(NO_MODULE), reason="this kernel has the module, which mounts without FUSE"))])
def test_options(script, kind):
    for options in GENERIC:
        shown = script(f"mount -t {kind} -o {options} $V $M && grep $M /proc/self/mountinfo && umount $M")
        assert " - fuse.tux3 " in shown, options
        for option in set(options.split(",")) & {"noexec", "nosuid", "nodev", "noatime", "ro", "nosymfollow"}:
            assert option in shown.split()[5].split(","), (option, shown)
    for options, said in WRONG_OPTIONS:
        assert said in script(f"mount -t {kind} -o {options} $V $M", 1), options
    script(f"mount -s -t {kind} -o nonsense,also=nonsense,age=2 $V $M; umount $M")


def test_fstab_and_remount(script):
    """All that is in fstab comes with a remount too."""
    script("""
echo "$V $M fuse.tux3 age=60,user_xattr,errors=remount-ro,nofail,noatime 0 0" >$T/fstab
mount -T $T/fstab $M
echo x >$M/f
mount -o remount,ro $M
! touch $M/g 2>/dev/null
grep "$M ro,noatime.* - fuse.tux3 .* ro," /proc/self/mountinfo
# It was committed: a crash now loses nothing.
cp $V $T/copy
mount -o remount,rw $M && touch $M/g
mount -o remount,nosuid,age=2 $M && grep "$M rw,nosuid" /proc/self/mountinfo
umount $M
mount -t fuse.tux3 $T/copy $M && grep x $M/f && umount $M
""")
    assert "unmount it and mount it again" in script(
        "mount -t fuse.tux3 -o ro $V $M; mount -o remount,rw $M || { said=$?; umount $M; exit $said; }", 32)


def test_remount_changes_options(script):
    """Those that can be: with age=1 a change is durable by itself, which the stat of another counter shows."""
    script("""
mount -t fuse.tux3 -o age=3000,threads=3 $V $M
mount -o remount,age=0.2,dirty=8M,cache=16M,data_cache=8M,names=5000 $M
before=$($B/tux3 stat $M committed_delta | tr -s " " | cut -d" " -f2)
echo x >$M/f
for n in $(seq 600); do
	[ $($B/tux3 stat $M committed_delta | tr -s " " | cut -d" " -f2) -gt $before ] && break
	sleep 0.1
done
[ $n -lt 600 ]
# What does not change may be said again.
mount -o remount,threads=3,user_xattr,noatime $M
umount $M
""")


def test_atime(script):
    """The kernel leaves it to the daemon: noatime and nodiratime are not only shown."""
    script("""
old() { touch -a -d 2001-01-01 $M/d $M/f; echo x >$M/d/$1; echo x >>$M/f; }
used() { cat $M/f >/dev/null; ls $M/d >/dev/null; echo $(stat -c %x $M/f | cut -c1-4) $(stat -c %x $M/d | cut -c1-4); }
now=$(date +%Y)
mount -t fuse.tux3 -o noatime $V $M
mkdir $M/d
old 1; [ "$(used)" = "2001 2001" ]
mount -o remount,atime,nodiratime $M
old 2; [ "$(used)" = "$now 2001" ]
mount -o remount,diratime,relatime $M
old 3; [ "$(used)" = "$now $now" ]
mount -o remount,noatime $M
old 4; [ "$(used)" = "2001 2001" ]
umount $M
$B/tux3-fuse -o noatime -o age=1 $V $M
old 5; [ "$(used)" = "2001 2001" ]
umount $M
$B/fsck.tux3 -n $V
mount -t fuse.tux3 -o nodiratime $V $M
old 6; [ "$(used)" = "$now 2001" ]
umount $M
""")


def test_sync(script):
    """What the kernel leaves to the daemon, too: nothing waits after any operation.  (What goes ahead of its delta counts as waiting.)"""
    script("""
waits() { $B/tux3 stat $M dirty_changes | tr -dc 0-9; }
deltas() { $B/tux3 stat $M deltas | tr -dc 0-9; }
# A file that goes is forgotten by the kernel some time after its name.
all() {
	echo "$1" | while read -r command; do
		before=$(deltas)
		eval "$command" </dev/null
		case $command in
		rm*) [ $(deltas) -gt $before ] ;;
		*) [ "$(waits)" = 0 ] ;;
		esac || { echo "$(waits) changes wait after: $command"; exit 1; }
	done
}
names="mkdir $M/d; mknod $M/d/p p; : >$M/d/f; ln -s x $M/d/s; ln $M/d/f $M/d/l; mv $M/d/f $M/f; rm $M/d/l; rm $M/d/p; rm $M/d/s; rmdir $M/d"
names=$(echo "$names" | tr ';' '\n')
rest="chmod 600 $M/f; touch -d @7 $M/f; truncate -s 50000 $M/f; head -c 9000 /dev/zero >$M/f; fallocate -l 100000 $M/f"
rest=$(echo "$rest; setfattr -n user.a -v b $M/f; setfattr -x user.a $M/f; chattr +d $M/f" | tr ';' '\n')
mount -t fuse.tux3 -o sync,fsync=full,age=600 $V $M
all "$names"
all "$rest"
mount -o remount,async $M
chmod 644 $M/f; [ "$(waits)" != 0 ]
mount -o remount,dirsync $M
rm $M/f
all "$names"
chmod 644 $M/f; [ "$(waits)" != 0 ]
umount $M
$B/tux3-fuse -o dirsync -o fsync=full -o age=600 $V $M
rm $M/f
all "$names"
umount $M
$B/fsck.tux3 -n $V
""")


@pytest.mark.parametrize("options,said", [
    ("nonsense", "unknown mount option 'nonsense'"), ("age", "mount option age needs a value"), ("noatime=1", "takes no value"),
    ("threads=4", "mount option threads cannot be changed by a remount: unmount and mount again"),
    ("norecovery", "mount option norecovery cannot be changed"), ("log=/tmp/x", "mount option log cannot be changed"),
    ("noallow_other", "mount option allow_other cannot be changed"), ("auto_unmount", "auto_unmount cannot be changed")])
def test_remount_refuses(script, options, said):
    """And nothing is changed."""
    shown = script(f"""
mount -t fuse.tux3 $V $M
set +e
mount -o remount,noexec,{options} $M
[ $? = 32 ] || exit 5
set -e
grep $M /proc/self/mountinfo
umount $M
""")
    assert said in shown and "noexec" not in shown.splitlines()[0] + shown.splitlines()[-1], shown


def test_auto_unmount(script):
    script("""
mount -t fuse.tux3 -o auto_unmount $V $M
grep "$M rw,relatime" /proc/self/mountinfo
for p in /proc/[0-9]*; do
	if [ $p/exe -ef $B/tux3-fuse ] && tr '\\0' ' ' <$p/cmdline | grep -q "$V"; then kill -9 ${p#/proc/}; fi
done
while grep -q " $M " /proc/self/mountinfo; do sleep 0.05; done
""")


def test_syslog(script, tmp_path):
    log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    log.bind(str(tmp_path / "log"))
    log.settimeout(60)
    said = []

    def listen():
        while not (said and "unmounted" in said[-1]):
            said.append(log.recv(65536).decode())
    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    made = not os.path.lexists("/dev/log")
    if made:
        open("/dev/log", "x").close()
    try:
        script("mount --bind $T/log $(realpath /dev/log)\nmount -t fuse.tux3 $V $M && umount $M\n")
    finally:
        if made:
            os.unlink("/dev/log")
    thread.join(60)
    log.close()
    assert any("tux3-fuse[" in line and " mounted on " in line for line in said), said
    assert "unmounted" in said[-1]


def test_a_volume_that_stops(script):
    """The image has no room to grow: what is not there cannot be committed.  Reads go on, changes are refused."""
    said = script("""
mkdir $T/small && mount -t tmpfs -o size=6M tmpfs $T/small
$B/mkfs.tux3 --quiet $T/small/v.img 256M
mount -t fuse.tux3 -o age=60 $T/small/v.img $M
echo kept >$M/kept && sync $M/kept
! dd if=/dev/urandom of=$M/big bs=1M count=20 conv=fsync 2>/dev/null
! mkdir $M/new
[ "$(cat $M/kept)" = kept ]
for n in $(seq 600); do
	if grep -q "$M ro" /proc/self/mountinfo; then break; fi
	sleep 0.1
done
grep "$M ro.* - fuse.tux3 .* ro," /proc/self/mountinfo
umount $M
""")
    assert "mkdir: cannot create directory" in said and "Read-only file system" in said


def test_the_end_of_a_daemon_unmounts_its_own_mount_only(script):
    """Not what is mounted over it, nor what took its place; and its own wherever that was moved."""
    script("""
daemon() { pgrep -f "fuse.tux3 $1 $M "; }
ended() { while kill -0 $1 2>/dev/null; do grep -q '^State:.Z' /proc/$1/status && break; sleep 0.02; done; }
mount -t fuse.tux3 $V $M
mount -t tmpfs tmpfs $M && echo precious >$M/f
pid=$(daemon $V); kill $pid; ended $pid
[ "$(cat $M/f)" = precious ]
umount $M; umount -l $M
$B/fsck.tux3 $V

mount -t fuse.tux3 $V $M
exec 7<$M
umount -l $M
mount -t tmpfs tmpfs $M && echo precious >$M/f
pid=$(daemon $V); kill $pid; ended $pid; exec 7<&-
[ "$(cat $M/f)" = precious ]
umount $M
$B/fsck.tux3 $V

mkdir $T/else
mount -t fuse.tux3 $V $M && mount --bind $M $T/else
echo bound >$M/f
pid=$(daemon $V); kill $pid; ended $pid
! mountpoint -q $T/else && ! mountpoint -q $M
mount -t fuse.tux3 $V $M && mount --move $M $T/else
pid=$(daemon $V); kill $pid; ended $pid
! mountpoint -q $T/else
$B/fsck.tux3 $V
""")


@pytest.mark.skipif(not shutil.which("fusermount3"), reason="no fusermount3")
def test_auto_unmount_for_a_user(script):
    """Who is not root needs fusermount3 for it, and /dev/fuse.  (The way to our programs may be closed to him: by descriptor.)"""
    said = script("""
mknod $T/fuse c 10 229 && chmod 666 $T/fuse && mount --bind $T/fuse /dev/fuse || { echo no device; exit 0; }
mount -t tmpfs -o mode=777 tmpfs /media
exec 8<$B/mkfs.tux3 9<$B/tux3-fuse
user() { setpriv --reuid=nobody --regid=nogroup --clear-groups "$@"; }
user /proc/self/fd/8 -q /media/v 16M
user mkdir /media/m
user sh -c "exec 3<>/dev/fuse" 2>/dev/null && [ -u "$(command -v fusermount3)" ] && grep -q "^NoNewPrivs:.0" /proc/self/status || {
	echo no permission; exit 0; }
for n in 1 2 3; do
	user /proc/self/fd/9 -o auto_unmount /media/v /media/m
	grep -q "/media/m rw,nosuid,nodev" /proc/self/mountinfo
	user touch /media/m/file
	for p in /proc/[0-9]*; do
		if [ $p/exe -ef $B/tux3-fuse ] && tr '\\0' ' ' <$p/cmdline | grep -q "/media/v"; then kill -9 ${p#/proc/}; fi
	done
	while grep -q " /media/m " /proc/self/mountinfo; do sleep 0.05; done
done
user /proc/self/fd/9 -o auto_unmount /media/v /media/m
user fusermount3 -u /media/m
""")
    if said.startswith("no "):
        pytest.skip("/dev/fuse cannot be used by others here")
