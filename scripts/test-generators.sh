#!/usr/bin/env bash
# Generates clients from the contract with several generators, compiles them, and uses each on a server of its own:
# register, post, comment, like, list, search, report, claim, an error and an edit. GENERATORS names those to test, all by
# default. Tools are kept in LIKEWISE_CACHE. docs/clients.md has what the generators cannot do.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
cache=${LIKEWISE_CACHE:-$root/.cache}
generators=${GENERATORS:-oapi-codegen openapi-generator-go openapi-python-client openapi-generator-python hey-api
	openapi-generator-typescript}
programs=$root/scripts/generators
contract=$root/handlers/openapi.yaml

scratch=$(mktemp -d)
server=
finish() {
	status=$?
	trap - EXIT
	if [ -n "$server" ] && kill -TERM "$server" 2>/dev/null; then
		wait "$server" || true
	fi
	[ "$status" = 0 ] || tail -n 50 "$scratch/output" >&2 || true
	rm -rf "$scratch"
	exit "$status"
}
trap finish EXIT
trap 'exit 1' HUP INT TERM
: >"$scratch/output"

# wants reports whether a generator whose name matches the pattern is to be tested.
wants() { grep -qE "(^|[[:space:]])($1)([[:space:]]|$)" <<<"$generators"; }

# installed DIR FILES... reports whether DIR was installed from files with the same contents.
installed() { [ "$(cat "${@:2}" | sha256sum)" = "$(cat "$1/from" 2>/dev/null)" ]; }

python=$cache/generators/python
if wants 'openapi-generator.*|openapi-python-client' && ! installed "$python" "$programs/requirements.txt"; then
	python3 -c 'import ensurepip, venv' 2>/dev/null || scripts/install-packages.sh python3-venv
	python3 -m venv --clear "$python"
	"$python/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$programs/requirements.txt"
	sha256sum <"$programs/requirements.txt" >"$python/from"
fi
typescript=$cache/generators/typescript
if wants '.*typescript|hey-api' && ! installed "$typescript" "$programs"/package{,-lock}.json; then
	command -v npm >/dev/null || scripts/install-packages.sh nodejs npm
	mkdir -p "$typescript"
	cp "$programs"/package{,-lock}.json "$typescript"
	npm --prefix "$typescript" ci --ignore-scripts --no-audit --no-fund --loglevel=error
	cat "$programs"/package{,-lock}.json | sha256sum >"$typescript/from"
fi
if wants 'openapi-generator.*'; then
	command -v java >/dev/null || scripts/install-packages.sh default-jre-headless
fi

bin/likewise dev --empty --data "$scratch/data" --listen 127.0.0.1:0 --web 127.0.0.1:0 \
	>"$scratch/log" 2>&1 &
server=$!

# openapi_generator LANGUAGE DIR [NAME=VALUE...] generates the code alone, without its pages and empty tests.
openapi_generator() {
	"$python/bin/openapi-generator-cli" generate -i "$contract" -g "$1" -o "$2" \
		--global-property=apiTests=false,modelTests=false,apiDocs=false,modelDocs=false "${@:3}"
}

# compile NAME generates a client, and compiles it with the program that uses it.
compile() {
	case $1 in
	oapi-codegen)
		cp -r "$programs/go/." "$scratch/go"
		mkdir -p "$scratch/go/$1/api"
		cd "$scratch/go"
		go tool oapi-codegen -config "$programs/oapi-codegen.yaml" "$contract"
		go build -o "$scratch/$1" "./$1"
		;;
	openapi-generator-go)
		cp -r "$programs/go/." "$scratch/go"
		openapi_generator go "$scratch/go/openapi-generator/api" \
			--additional-properties=packageName=likewise,withGoMod=false,enumClassPrefix=true
		cd "$scratch/go"
		go build -o "$scratch/$1" ./openapi-generator
		;;
	openapi-python-client)
		"$python/bin/openapi-python-client" generate --path "$contract" --meta none --fail-on-warning \
			--config "$programs/openapi-python-client.yaml" --output-path "$scratch/$1/likewise_client"
		"$python/bin/python" -m compileall -q "$scratch/$1"
		;;
	openapi-generator-python)
		openapi_generator python "$scratch/$1" --additional-properties=packageName=likewise
		"$python/bin/python" -m compileall -q "$scratch/$1"
		;;
	hey-api | openapi-generator-typescript)
		local name=${1%-typescript}
		mkdir -p "$scratch/$1"
		cp "$programs/typescript/$name.ts" "$programs/typescript/tsconfig.json" "$scratch/$1"
		ln -s "$typescript/node_modules" "$scratch/$1/node_modules"
		if [ "$1" = hey-api ]; then
			"$typescript/node_modules/.bin/openapi-ts" -i "$contract" -o "$scratch/$1/api" -c @hey-api/client-fetch \
				--no-log-file
		else
			openapi_generator typescript-fetch "$scratch/$1/api"
		fi
		"$typescript/node_modules/.bin/tsc" -p "$scratch/$1"
		;;
	*)
		echo "there is no generator $1" >&2
		return 1
		;;
	esac
}

# use NAME runs the program that uses a client.
use() {
	case $1 in
	oapi-codegen | openapi-generator-go) "$scratch/$1" "$url" ;;
	openapi-python-client) PYTHONPATH=$scratch/$1 "$python/bin/python" "$programs/python/openapi_python_client.py" "$url" ;;
	openapi-generator-python) PYTHONPATH=$scratch/$1 "$python/bin/python" "$programs/python/openapi_generator.py" "$url" ;;
	hey-api | openapi-generator-typescript) node "$scratch/$1/built/${1%-typescript}.js" "$url" ;;
	esac
}

for name in $generators; do
	begin=$SECONDS
	(compile "$name") >>"$scratch/output" 2>&1
	url=
	for _ in $(seq 600); do
		url=$(sed -n 's|^  API        \(http://.*\)/v1/posts$|\1|p' "$scratch/log")
		if [ -n "$url" ] && grep -q 'Stop it with Ctrl-C' "$scratch/log"; then
			break
		fi
		kill -0 "$server" 2>/dev/null || exit 1
		sleep 0.1
	done
	use "$name" >>"$scratch/output" 2>&1
	echo "test-generators: $name is good ($((SECONDS - begin)) s)"
done
