#!/bin/sh
# Installs what `likewise dev` and the tests run privately: MariaDB's server program and Redis, from the system's packages.
# Does nothing when both are there. Asks for root through sudo when it needs it.
set -eu

PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin # servers are not on an ordinary user's PATH
packages=
command -v mariadbd >/dev/null || packages="$packages mariadb-server-core"
command -v redis-server >/dev/null || packages="$packages redis-server"
[ -n "$packages" ] || exit 0

if ! command -v apt-get >/dev/null; then
	echo "Please install MariaDB (mariadbd) and Redis 7 or newer (redis-server): this script knows only apt-get." >&2
	exit 1
fi
[ "$(id -u)" = 0 ] || exec sudo sh "$0"

# The Redis package starts a server of its own, now and at every boot. Nobody asked for that.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	trap 'rm -f "$policy"' EXIT
	trap 'exit 1' HUP INT TERM
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod +x "$policy"
fi

# shellcheck disable=SC2086 # a list of words
"$(dirname "$0")/install-packages.sh" $packages
case $packages in
*redis-server*) update-rc.d redis-server disable >/dev/null 2>&1 || true ;; # fails where nothing starts services
esac
