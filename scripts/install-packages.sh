#!/bin/sh
# Installs packages of the system, through sudo when it needs root.
set -eu

if [ $# = 0 ]; then
	echo "usage: $0 PACKAGE..." >&2
	exit 2
fi
if ! command -v apt-get >/dev/null; then
	echo "Please install $*; this script knows only apt-get." >&2
	exit 1
fi
[ "$(id -u)" = 0 ] || exec sudo sh "$0" "$@"
export DEBIAN_FRONTEND=noninteractive
echo "Installing $*" >&2
apt-get update -qq
apt-get install -y -qq --no-install-recommends "$@" >/dev/null
