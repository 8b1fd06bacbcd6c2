#!/bin/sh
# Installs Oracle's MySQL server, which Debian has only in sid, into a folder tree of its own. Does nothing when it is
# there already, so that the folder can be kept between runs.
# LIKEWISE_SERVERS_MYSQL=chroot:DIR makes the tests and `likewise dev` use it; both then need root.
set -eu

if [ $# != 1 ]; then
	echo "usage: $0 DIR" >&2
	exit 2
fi
dir=$1
[ -x "$dir/usr/sbin/mysqld" ] && exit 0
[ "$(id -u)" = 0 ] || exec sudo sh "$0" "$dir"

command -v debootstrap >/dev/null || "$(dirname "$0")/install-packages.sh" debootstrap

# Under another name until it is whole: an interrupted run must not look like an installed server.
rm -rf "$dir.part"
mkdir -p "$dir.part"
if ! debootstrap --variant=minbase --include=mysql-server-core sid "$dir.part" >"$dir.log" 2>&1; then
	tail -n 20 "$dir.log" >&2
	exit 1
fi
rm -rf "$dir" "$dir.part/var/cache/apt/archives"
mv "$dir.part" "$dir"
rm "$dir.log"
chroot "$dir" /usr/sbin/mysqld --version
