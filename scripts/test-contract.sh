#!/usr/bin/env bash
# Attacks a server of its own with random requests, valid and invalid, that are made from its contract. Any answer that is
# not in the contract fails, and so does any 5xx. CONTRACT_FOR is how many seconds to go on, CONTRACT_SEED which requests
# to make, SCHEMATHESIS the program that makes them.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
attack=$(realpath "$(command -v "${SCHEMATHESIS:-schemathesis}")")

scratch=$(mktemp -d)
server=
finish() {
	status=$?
	trap - EXIT
	if [ -n "$server" ] && kill -TERM "$server" 2>/dev/null; then
		wait "$server" || true
	fi
	if [ "$status" != 0 ]; then
		echo "test-contract: failed; what the server found wrong:" >&2
		grep -E 'level=(WARN|ERROR)|panic' "$scratch/log" | tail -50 >&2 || true
	fi
	rm -rf "$scratch"
	exit "$status"
}
trap finish EXIT
trap 'exit 1' HUP INT TERM

: >"$scratch/log" # there to be read from the start
bin/likewise dev --empty --data "$scratch/data" --listen 127.0.0.1:0 --web 127.0.0.1:0 \
	>"$scratch/log" 2>&1 &
server=$!
url=
for _ in $(seq 600); do
	url=$(sed -n 's|^  API        \(http://.*\)/v1/posts$|\1|p' "$scratch/log")
	if [ -n "$url" ] && grep -q 'Stop it with Ctrl-C' "$scratch/log"; then
		break
	fi
	kill -0 "$server" 2>/dev/null || exit 1
	sleep 0.1
done

# From the scratch folder, where it may leave its notes. With one worker, because ast.parse of Python 3.11 fails at random
# in several threads (SystemError: AST constructor recursion depth mismatch).
cd "$scratch"
SCHEMATHESIS_HOOKS=$root/scripts/contract/hooks.py PYTHONDONTWRITEBYTECODE=1 \
	"$attack" --config-file "$root/scripts/contract/schemathesis.toml" run "$root/handlers/openapi.yaml" --url "$url" \
	--seed "${CONTRACT_SEED:-1}" --max-time "${CONTRACT_FOR:-75}" --workers 1 --warnings off \
	--generation-database none --no-color
if grep -qE 'msg=panic|level=ERROR' "$scratch/log"; then
	echo "test-contract: the server logged an error" >&2
	exit 1
fi
