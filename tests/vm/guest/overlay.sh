#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Layers of an overlay on a volume, as containers have them: what overlayfs wants of the filesystem below must be there, whatever
# it is asked for, also by a user who has mounted it himself.  In the machine:
#	vm/run --disk 256M -- tests/vm/guest/overlay.sh
cd "$(dirname "$0")/../../.." && . tests/vm/guest/lib.sh

make_lower() {
	mkdir "$MNT/lower" "$MNT/merged"
	cp -r core doc "$MNT/lower/"
	mkdir "$MNT/lower/dir"
	echo lower >"$MNT/lower/dir/file"
	ln "$MNT/lower/dir/file" "$MNT/lower/dir/link"
	ln -s dir/file "$MNT/lower/symlink"
	setfattr -n user.name -v value "$MNT/lower/dir/file"
	setfacl -m u:3:r "$MNT/lower/dir/file"
}

new_layers() {
	rm -rf "$MNT/upper" "$MNT/work"
	mkdir "$MNT/upper" "$MNT/work"
}

layers() {	# OPTIONS
	echo "lowerdir=$MNT/lower,upperdir=$MNT/upper,workdir=$MNT/work$1"
}

# In the overlay: everything that makes a change in the upper layer.
work_in_it() {
	cd "$MNT/merged"
	echo upper >>dir/file
	[ "$(cat dir/file)" = "$(printf 'lower\nupper')" ]
	getfattr -d dir/file | grep -q 'user.name="value"'
	getfacl -c dir/file | grep -q user:sys:r-- || getfacl -cn dir/file | grep -q user:3:r--
	rm dir/link
	[ "$(ls dir)" = file ]
	mv doc/DESIGN.md core/moved
	cmp core/moved "$MNT/lower/doc/DESIGN.md"
	mv core/tree core/tree2			# copied by mv, or redirected
	diff -r core/tree2 "$MNT/lower/core/tree"
	rm -r doc
	mkdir doc
	[ -z "$(ls -A doc)" ]			# not what is below
	chmod 700 core
	chattr +d core/env.h
	: >core/host.h
	fallocate -l 100k core/host.h
	sync core/host.h
	python3 -c '
import os
fd = os.open("dir", os.O_TMPFILE | os.O_RDWR, 0o600)
os.write(fd, b"text")
os.link(f"/proc/self/fd/{fd}", "linked", dst_dir_fd=os.open("dir", 0), follow_symlinks=True)
'
	[ "$(cat dir/linked)" = text ]
	[ "$(cat "$MNT/lower/dir/file")" = lower ]
}

one_overlay() {	# OPTIONS
	dmesg --clear
	check "overlay '$1': mount" mount -t overlay -o "$(layers "$1")" overlay "$MNT/merged" || return
	check "overlay '$1': work" bash -e tests/vm/guest/overlay.sh work_in_it
	check "overlay '$1': umount" umount "$MNT/merged"
	check "overlay '$1': mounted again" mount -t overlay -o "$(layers "$1")" overlay "$MNT/merged"
	check "overlay '$1': all is there" bash -ec "cd $MNT/merged; [ \$(cat dir/linked) = text ]; ! test -e dir/link; ls -R >/dev/null"
	check "overlay '$1': umount again" umount "$MNT/merged"
	if dmesg | grep -iE "overlayfs: (upper|.*not support|.*fall.* back)"; then failed "overlay '$1'" "something is missing"; fi
}

# As containers without root: white-outs and opaque directories are marked by attributes of users.
as_user() {
	chown -R 1000:1000 "$MNT/upper" "$MNT/work" "$MNT/merged"
	setpriv --reuid 1000 --regid 1000 --clear-groups unshare -Urm bash -ec "
		mount -t overlay -o '$(layers ,userxattr)' overlay $MNT/merged
		cd $MNT/merged
		touch new; mkdir sub; mv sub sub2; rm symlink new
		[ ! -e symlink ]
		cd /; umount $MNT/merged"
}

if [ $# = 1 ]; then
	"$1"
	exit
fi
modprobe overlay
fresh || exit 1
make_lower
for options in "" ,index=on,redirect_dir=on,metacopy=on ,index=on,nfs_export=on,redirect_dir=on ,userxattr; do
	new_layers
	one_overlay "$options"
done
new_layers
check "an overlay of a user's own" as_user
checked_umount clean
summary
