#!/bin/sh
# Builds versitygw, a server that speaks S3 and keeps its objects in a folder, and prints the path of its program. The
# tests of images use it. Does nothing but print if this version is there already.
set -eu

version=v1.8.0
cache=${LIKEWISE_CACHE:-$(cd "$(dirname "$0")/.." && pwd)/.cache}
dir=$cache/versitygw-$version
if [ ! -x "$dir/versitygw" ]; then
	mkdir -p "$dir"
	# Built under another name, so that an interrupted run does not look like an installed program. Two runs at a time
	# do the same work twice.
	part=$(mktemp -d "$dir/part.XXXXXX")
	trap 'rm -rf "$part"' EXIT
	trap 'exit 1' HUP INT TERM
	GOFLAGS='' GOBIN=$part CGO_ENABLED=0 go install -trimpath -ldflags '-s -w' \
		"github.com/versity/versitygw/cmd/versitygw@$version" >&2
	mv "$part/versitygw" "$dir/versitygw"
fi
echo "$dir/versitygw"
