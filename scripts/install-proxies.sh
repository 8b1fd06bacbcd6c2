#!/bin/sh
# Unpacks nginx and Caddy, as Debian packages them, into DIR for the tests. They are not installed: the packages would
# start servers.
set -eu

if [ $# != 1 ]; then
	echo "usage: $0 DIR" >&2
	exit 2
fi
dir=$1
[ ! -x "$dir/usr/bin/caddy" ] || [ ! -x "$dir/usr/sbin/nginx" ] || exit 0
if ! command -v apt-get >/dev/null; then
	echo "Please put nginx into $dir/usr/sbin and caddy into $dir/usr/bin: this script knows only apt-get." >&2
	exit 1
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
cd "$scratch"
echo "Unpacking nginx and caddy" >&2
apt-get download -qq nginx caddy 2>/dev/null || { apt-get update -qq && apt-get download -qq nginx caddy; }
cd - >/dev/null
mkdir -p "$dir"
for package in "$scratch"/*.deb; do
	dpkg-deb -x "$package" "$dir"
done
if ldd "$dir/usr/sbin/nginx" | grep -q 'not found'; then
	"$(dirname "$0")/install-packages.sh" libpcre2-8-0 libssl3 zlib1g
fi
