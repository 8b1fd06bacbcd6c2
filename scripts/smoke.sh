#!/usr/bin/env bash
# Uses `make run` as a newcomer would, in a data folder of its own: it must be ready within ten seconds, have a sample
# forum, greet last, take a like, stop on one SIGTERM with no process left and say so, find its data again, get over kill
# -9, import a dump twice without doubling anything, even from a renamed folder, and verify clean. What was imported must
# be found, and what is new be counted: a comment by a word that only comments have, a user by the first three letters of
# the name, a comment that its reader has not read. The dump is LIKEWISE_DUMP if set, else the whole site beside the
# checkout, else the extract that the tests use.
set -euo pipefail
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
run=
finish() {
	status=$?
	trap - EXIT
	if [ -n "$run" ] && kill -TERM "$run" 2>/dev/null; then
		wait "$run" || true
	fi
	if [ "$status" != 0 ] && [ -e "$scratch/log" ]; then
		echo "smoke: failed; what make run said:" >&2
		cat "$scratch/log" >&2
	fi
	rm -rf "$scratch"
	exit "$status"
}
trap finish EXIT
trap 'exit 1' HUP INT TERM

say() { echo "smoke: $*"; }
fail() {
	echo "smoke: $*" >&2
	exit 1
}

command -v curl >/dev/null || scripts/install-packages.sh curl
command -v pgrep >/dev/null || scripts/install-packages.sh procps

export LIKEWISE_DATA=$scratch/data
export LIKEWISE_LISTEN=127.0.0.1:0 LIKEWISE_WEB_LISTEN=127.0.0.1:0 # free ports, which the greeting names

now() { date +%s%3N; } # milliseconds

# start runs `make run` and waits until it is ready: $url is the API.
start() {
	: >"$scratch/log"
	make run >"$scratch/log" 2>&1 &
	run=$!
	local begin waited admin
	begin=$(now)
	url='' admin=''
	while :; do
		waited=$(($(now) - begin))
		[ -n "$admin" ] || admin=$(sed -n 's|^  readiness  \(http://.*\)/readyz$|\1|p' "$scratch/log")
		if [ -n "$admin" ] && grep -q '^Stop it with Ctrl-C' "$scratch/log" && curl -fsS -m 2 "$admin/readyz" 2>/dev/null | grep -q '"status":"ok"'; then
			break
		fi
		kill -0 "$run" 2>/dev/null || fail "make run ended before it was ready"
		[ "$waited" -lt 10000 ] || fail "make run is not ready after 10 s"
		sleep 0.05
	done
	say "ready after $waited ms"
	url=$(sed -n 's|^  API        \(http://.*\)/v1/posts$|\1|p' "$scratch/log")
	[ "$(servers | wc -l)" = 3 ] || fail "not three servers run"
	[ "$(grep -v '^$' "$scratch/log" | tail -n 1)" = 'Stop it with Ctrl-C.' ] ||
		fail "the greeting is not the last"
	[ "$(grep -c 'shards are open' "$scratch/log")" -le 1 ] || fail "the shards are reported more than once"
}

# servers prints the ids of the private servers that still run.
servers() {
	local file pid
	for file in "$LIKEWISE_DATA"/*/pid; do
		read -r pid _ <"$file" || [ -n "$pid" ] || continue # the line has no end
		[ ! -d "/proc/$pid" ] || echo "$pid"
	done
}

# stop sends one SIGTERM to make, as an init system would, and waits until all is gone.
stop() {
	local begin
	begin=$(now)
	kill -TERM "$run"
	wait "$run" || true # make fails after a signal
	run=
	[ -z "$(servers)" ] || fail "left running: $(servers | xargs ps -o pid,args -p)"
	grep -q '^Likewise has stopped' "$scratch/log" || fail "it does not say that it has stopped"
	say "stopped after $(($(now) - begin)) ms"
}

# call METHOD PATH STATUS [JSON] prints the answer, which must have the status.
call() {
	local answer
	answer=$(curl -sS -m 15 -X "$1" "$url$2" -w '\n%{http_code}' ${token:+-H "Authorization: Bearer $token"} \
		${4:+-H 'Content-Type: application/json' --data "$4"})
	[ "${answer##*$'\n'}" = "$3" ] || fail "$1 $2 answered ${answer##*$'\n'}, not $3: ${answer%$'\n'*}"
	printf '%s' "${answer%$'\n'*}"
}

# field NAME [json] picks a string or number out of JSON on standard input, the first of that name.
field() { grep -o "\"$1\":\(\"[^\"]*\"\|[0-9]*\)" | sed -n "1s/^\"$1\":\"\{0,1\}\([^\"]*\)\"\{0,1\}$/\1/p"; }

likewise() {
	# shellcheck disable=SC1091 # written by the running server
	(set -a && . "$LIKEWISE_DATA/dev.env" && exec bin/likewise "$@")
}

verify() {
	likewise cron run flush
	likewise verify | tee "$scratch/verify"
	grep -q ': 0 differences' "$scratch/verify" || fail "verify found differences"
}

[ "$(bin/likewise)" = "$(bin/likewise --help)" ] || fail "likewise alone does not print its help"
bin/likewise --version | grep -q '^likewise ' || fail "no version"
start
password=$(sed -n 's/^  login      admin, password \([^ ]*\) .*/\1/p' "$scratch/log")
[ -n "$password" ] || fail "the first start shows no password"
grep -qx "password: $password" "$LIKEWISE_DATA/admin.txt" || fail "admin.txt does not have the password"
[ "$(stat -c %a "$LIKEWISE_DATA/admin.txt")" = 600 ] || fail "others can read admin.txt"
forum=$(sed -n 's|^  forum      \(http://localhost:.*\)$|\1|p' "$scratch/log")
grep -qF "Open $forum in a browser" "$scratch/log" || fail "the greeting does not name the page to open"
[ "$(curl -sS -H 'Accept: text/html' -o /dev/null -w '%{http_code} %{redirect_url}' "$url/")" = "302 $forum/" ] ||
	fail "/ of the API does not lead to the forum"
[ "$(curl -fsS "$forum/" | grep -o 'href="/posts/[0-9]*"' | sort -u | wc -l)" -ge 20 ] ||
	fail "the front page does not have the sample"
token=
[ "$(call GET '/v1/posts?limit=100' 200 | grep -o '"excerpt"' | wc -l)" = 20 ] || fail "the sample has not 20 posts"
token=$(call POST /v1/auth/login 200 "{\"login\":\"admin\",\"password\":\"$password\"}" | field token)
[ "$(call GET /v1/admin/reports 200 | field reporters_count)" = 1 ] || fail "the sample has no open report"
verify
echo 'another password than the first' | likewise user password admin >/dev/null
for _ in $(seq 100); do # within 5 s
	status=$(curl -sS -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $token" "$url/v1/me")
	[ "$status" != 401 ] || break
	sleep 0.1
done
[ "$status" = 401 ] || fail "a session outlives its password"
token=
call POST /v1/auth/login 200 '{"login":"admin","password":"another password than the first"}' >/dev/null
token=$(call POST /v1/auth/register 201 '{"username":"smoke","email":"smoke@likewise.example","password":"a smoke test only"}' | field token)
[ -n "$token" ] || fail "registering returns no token"
post=$(call POST /v1/posts 201 '{"title":"Does it work?","content":"It *should*."}' | field id)
for _ in first again; do
	answer=$(call PUT "/v1/posts/$post/like" 200)
	[ "$answer" = '{"liked":true,"likes_count":1}' ] || fail "a like answers $answer"
done
say "liked post $post"
stop

start
! grep -qF "$password" "$scratch/log" || fail "the second start shows the password again"
[ "$(call GET "/v1/posts/$post" 200 | field likes_count)" = 1 ] || fail "the like is not there on the second start"
[ "$(call GET /v1/me 200 | field username)" = smoke ] || fail "the token is not good on the second start"
call DELETE "/v1/posts/$post/like" 200 >/dev/null
call PUT "/v1/posts/$post/like" 200 >/dev/null
main=$(pgrep -P "$run" -x likewise-dev)
kill -KILL "$main"
wait "$run" || true
run=
say "killed"

start
[ "$(call GET "/v1/posts/$post" 200 | field likes_count)" = 1 ] || fail "the like is not there after kill -9"
verify

# created prints how many users, posts, comments, likes of posts and of comments the last import created. The columns of
# its table: name (one or two words), read, created, there already, skipped.
created() {
	awk '/^ *(users|posts|comments|post likes|comment likes) / && $(NF-3) ~ /^[0-9,]+$/ { print $(NF-2) }' "$scratch/import"
}

whole=../shared/data/quantumcomputing.stackexchange
extract=cmd/likewise/stackexchange/testdata/quantumcomputing.stackexchange
if [ -n "${LIKEWISE_DUMP:-}" ]; then
	dump=$LIKEWISE_DUMP
elif [ -e "$whole/Posts.xml" ]; then
	dump=$whole
else
	dump=$extract
fi
say "importing $dump ($(du -sh "$dump" | cut -f1))"
for round in first second; do
	begin=$(now)
	likewise import stackexchange "$dump" | tee "$scratch/import"
	say "$round import took $(($(now) - begin)) ms"
	verify
	[ "$round" = first ] || continue
	top=$(call GET '/v1/posts?sort=top&limit=1' 200 | field likes_count)
	[ "$top" -gt 1 ] || fail "the top post has $top likes after the import"
	[ "$dump" != "$whole" ] || [ "$top" = 119 ] || fail "the top post has $top likes, not 119"
	[ "$dump" != "$whole" ] || [ "$(created | xargs)" = "3,461 612 4,473 5,087 6,435" ] || fail "the import created $(created | xargs)"
done
[ "$(created | xargs)" = "0 0 0 0 0" ] || fail "the second import created $(created | xargs)"
[ "$(call GET '/v1/posts?sort=top&limit=1' 200 | field likes_count)" = "$top" ] || fail "the second import changed the top post"
cp -r "$dump" "$scratch/renamed"
! likewise import stackexchange "$scratch/renamed" 2>"$scratch/refused" || fail "a renamed dump is imported again"
grep -q 'this dump was imported under the name' "$scratch/refused" || fail "a renamed dump is refused: $(cat "$scratch/refused")"

# words FILE prints the words of 8 to 14 letters in a file of the dump, in order.
words() { tr '[:upper:]' '[:lower:]' <"$1" | grep -oP '(?<= )[a-z]{8,14}(?= )' | LC_ALL=C sort -u; }

# By their last letters, words have other forms, which a search finds, too: only the beginning must be unknown to posts.
word=
for candidate in $(LC_ALL=C comm -13 <(words "$dump/Posts.xml") <(words "$dump/Comments.xml")); do
	if ! grep -qi "${candidate:0:5}" "$dump/Posts.xml"; then
		word=$candidate
		break
	fi
done
[ -n "$word" ] || fail "$dump has no word that only comments have"
[ "$(call GET "/v1/posts?q=$word" 200 | field id)" = '' ] || fail "a post has $word"
found=$(call GET "/v1/comments?q=$word" 200)
grep -qi "\"content\":\"[^\"]*$word" <<<"$found" || fail "no comment is found by $word: $found"

name=$(call GET '/v1/posts?sort=top&limit=1' 200 | field username)
names=$(call GET "/v1/users/by-prefix/${name:0:3}?limit=20" 200)
grep -qF "\"username\":\"$name\"" <<<"$names" || fail "${name:0:3} is not completed to $name: $names"

reader=$token
[ "$(call PUT "/v1/posts/$post/read" 200 "{}" | field unread_count)" = 0 ] || fail "a post that was read has unread comments"
token=
token=$(call POST /v1/auth/register 201 '{"username":"other","email":"other@likewise.example","password":"a smoke test only"}' |
	field token)
call POST "/v1/posts/$post/comments" 201 '{"content":"It does."}' >/dev/null
token=$reader
unread=$(call GET "/v1/posts/$post" 200 | field unread_count)
[ "$unread" = 1 ] || fail "the post has $unread unread comments, not 1"
say "found $word and $name, and 1 unread comment"
stop
say "passed"
