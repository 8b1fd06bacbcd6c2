#!/usr/bin/env bash
# Checks the units of docs/systemd as systemd reads them, and that each exposes little: systemd-analyze rates that from
# 0 (nothing) to 10. A stub stands for the program, in a folder tree of its own.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v systemd-analyze >/dev/null || scripts/install-packages.sh systemd
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
trap 'exit 1' HUP INT TERM
mkdir -p "$root/usr/local/bin" "$root/usr/lib/systemd" "$root/etc/systemd/system" "$root/etc/likewise"
install -m 755 /bin/true "$root/usr/local/bin/likewise"
install -m 600 docs/systemd/*.env "$root/etc/likewise/"
install -m 644 docs/systemd/*.service "$root/etc/systemd/system/"
cp -r /usr/lib/systemd/system "$root/usr/lib/systemd/" # the targets that the units name

for unit in docs/systemd/*.service; do
	name=$(basename "$unit")
	said=$(systemd-analyze verify --root="$root" --man=no "$root/etc/systemd/system/$name" 2>&1) || true
	if grep -F "$name" <<<"$said"; then
		echo "lint-systemd: $name" >&2
		exit 1
	fi
	systemd-analyze security --offline=true --root="$root" --threshold=20 --no-pager "$name" |
		tail -n 1
done
