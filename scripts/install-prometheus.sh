#!/bin/sh
# Unpacks Debian's package of Prometheus, and prints the folder of its programs, prometheus and promtool. Unpacked, not
# installed: the package would start a Prometheus. Does nothing but print if they are there already.
set -eu

cache=${LIKEWISE_CACHE:-$(cd "$(dirname "$0")/.." && pwd)/.cache}
dir=$cache/prometheus
if [ ! -x "$dir/usr/bin/prometheus" ]; then
	mkdir -p "$cache"
	# Unpacked under another name, so that an interrupted run does not look like an installed program.
	part=$(mktemp -d "$cache/prometheus.XXXXXX")
	trap 'rm -rf "$part"' EXIT
	trap 'exit 1' HUP INT TERM
	chmod 755 "$part" # apt downloads as a user of its own
	cd "$part"
	if ! apt-get download -qq prometheus 2>/dev/null; then
		apt-get update -qq || sudo apt-get update -qq
		apt-get download -qq prometheus
	fi
	dpkg-deb -x prometheus_*.deb "$part/unpacked"
	rm -rf "$dir"
	mv "$part/unpacked" "$dir"
fi
echo "$dir/usr/bin"
