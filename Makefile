# Everything runs in .venv, which `make setup` makes; all other targets see to it themselves.
#   make run    a node on conf/standalone.yaml, data in ./data
#   make test   formatting, lint, strict types, and the whole test suite

VENV   := .venv
BIN    := $(VENV)/bin
BASE   := $(VENV)/.base
STAMP  := $(VENV)/.set-up
ACCELERATORS := $(VENV)/.accelerators
CONFIG ?= conf/standalone.yaml
DATA   ?= data
FUZZ_SECONDS ?= 60
CHAOS_SECONDS ?= 600
CHAOS_SEED ?= 1
CHAOS_PROTOCOL ?= classic
LAG_BENCH ?=
LOCK := $(BIN)/uv pip compile --quiet --no-header --universal --python-version 3.11 --generate-hashes --upgrade
# Once more with every accelerator in Python, as on a machine without a C compiler.
PURE_TESTS := tests/unit/proxy/services/test_message_rules.py tests/integration/proxy/services/test_wire_against_thrift.py tests/integration/broker/store/test_store.py \
  tests/integration/broker/store/test_index.py tests/integration/proxy/node/test_node.py tests/simulation/test_operator.py

.DEFAULT_GOAL := help
.PHONY: help setup run programs test pure lint format bench bench-lag crash lifecycle powerloss cluster simulate mutants interop kafka chaos console pictures sinks rivals fuzz lock docs site clean

help: ## show the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/'

setup: $(STAMP) $(ACCELERATORS) ## make .venv with everything the project needs

# What a node needs, and no more. Nothing to do until pyproject.toml changes. Without byte code, where none may be written later,
# a start takes half as long again.
$(BASE): pyproject.toml
	@if [ ! -x $(BIN)/python ]; then \
	  for each in python3.13 python3.12 python3.11 python3; do \
	    if $$each -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then found=$$each; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo "pyddmq needs Python 3.11 or newer: install python3.11 (or newer) and run this again." >&2; exit 1; \
	  fi; \
	  echo "making $(VENV) with $$($$found --version)"; \
	  $$found -m venv $(VENV) || { \
	    rm -rf $(VENV); \
	    echo "$$found cannot make virtual environments: install its venv package (on Debian python3-venv)." >&2; \
	    exit 1; \
	  }; \
	fi
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$(VENV) has a Python older than 3.11: remove the folder and run this again." >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[server,speed,compile]'
	@$(BIN)/python -m compileall -q pyddmq conf broker upstream actions lag proxy
	@touch $@

# What tests and checks need besides; Spark is most of it.
$(STAMP): $(BASE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[server,speed,dev]'
	@touch $@

# Compiled anew when their sources change; says so in a line where that cannot be.
$(ACCELERATORS): $(BASE) compile_accelerators.py $(shell find broker proxy upstream actions -name '*_accelerator.pyx' -o -name '*.pxd')
	@$(BIN)/python compile_accelerators.py
	@touch $@

run: $(BASE) $(ACCELERATORS) ## start a node
	$(BIN)/pyddmq serve --config $(CONFIG) --data $(DATA)

# Programs that tests start; on a machine of one's own a missing one is a skip that says what to install.
PROGRAMS := redis-server:redis-server openssl:openssl promtool:prometheus amtool:prometheus-alertmanager

programs:
	@if [ "$$CI" = true ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  needed=$$(for each in $(PROGRAMS); do command -v "$${each%%:*}" >/dev/null || echo "$${each##*:}"; done); \
	  if [ -n "$$needed" ]; then \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$needed; \
	  fi; \
	fi

# Lint and the pure run are of one core each.
test: programs setup ## check and test everything
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target lint pure
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --junitxml .test-times.xml
	@$(BIN)/python -m tools.test_times

pure: setup ## some of the tests with every accelerator in Python
	PYDDMQ_PURE=1 $(BIN)/python -m pytest -q $(PURE_TESTS)

lint: setup ## formatting, lint, strict types, and how many lines there are
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m tools.count_lines

format: setup ## bring the code into form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## speed, beside Redis, NATS and RocketMQ where they can be had
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	$(BIN)/python -m bench

bench-lag: setup ## what a lag report costs, beside DuckDB; LAG_BENCH="--days 30" is the full size; Spark needs Java 17
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	$(BIN)/python -m bench.lag_report $(LAG_BENCH)

crash: setup ## a long campaign of SIGKILLs on real processes
	$(BIN)/python -m pytest -s tests/crash -m long

lifecycle: setup ## every kill point of the tables of states in docs/
	$(BIN)/python -m pytest -s tests/lifecycle -m long

powerloss: setup ## power losses under a real process, over a file system that forgets; needs FUSE
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[server,speed,dev,fuse]'
	$(BIN)/python -m pytest -s tests/powerloss -m long

cluster: setup ## the lag report, watch and streams on a Spark cluster of processes, kills of all of it, and a wheel's report; needs Java 17
	$(BIN)/python -m pytest -s tests/spark/test_cluster.py tests/spark/kills tests/acceptance/test_installed.py -m long

simulate: setup ## many seeds of the simulated node
	$(BIN)/python -m pytest tests/simulation -m long

mutants: setup ## every fault put back once, each to be noticed by the tests that are named for it
	$(BIN)/python -m tests.mutants

interop: setup ## our stores in a real Apache RocketMQ, and the reverse; needs Java 17 and Maven
	$(BIN)/python -m pytest tests/interop tests/unit/actions/http/test_push_page.py -m long --ignore tests/interop/test_bench.py

console: setup ## every page and button of the console in a browser; needs /usr/bin/chromium
	$(BIN)/python -m pytest tests/console -m long

pictures: setup ## a picture of every page of the console, wide and narrow, light and dark, in build/console
	$(BIN)/python -m tests.console.scenes build/console

sinks: setup ## the sinks at a real HBase, HDFS, S3 and Redis; needs Java 17 and Maven
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[server,speed,dev,s3test]'
	$(BIN)/python -m pytest tests/sinks -m long

kafka: setup ## what we say of Kafka, by a real one; needs Java 17 and Maven, or PYDDMQ_KAFKA=host:port
	$(BIN)/python -m pytest tests/kafka -m long -n 2 --dist loadfile --no-loadscope-reorder

chaos: setup ## ten minutes of nodes and a Kafka that are killed, stopped, added and removed; needs Java 17 and Maven
	$(BIN)/python -m tests.kafka.chaos --seconds $(CHAOS_SECONDS) --seed $(CHAOS_SEED) --protocol $(CHAOS_PROTOCOL)

rivals: setup ## that the benchmark works with RocketMQ beside it, and what of it `make test` leaves out; needs Java 17 and Maven
	$(BIN)/python -m pytest tests/interop/test_bench.py tests/integration/pyddmq/test_bench.py -m long

fuzz: setup ## search for inputs that break a promise, FUZZ_SECONDS for each target
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]'
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS)

lock: setup ## write the versions and sums that an installation can be held to, from pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv>=0.9,<1'
	$(LOCK) --extra server --extra speed --extra rocketmq --extra kafka --output-file requirements.lock pyproject.toml
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
	  | $(LOCK) --output-file requirements-build.lock -

docs: setup ## write the pages that are made from the code
	$(BIN)/python -m tools.docs

site: setup ## a searchable site of the documentation, in site/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[server,speed,dev,site]'
	$(BIN)/python -m sphinx --builder html --jobs auto --quiet --nitpicky --fail-on-warning docs site
	@echo "open site/README.html"

clean: ## remove .venv and all caches; data stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find . -maxdepth 1 -name '*.egg-info' -exec rm -rf {} +
	find broker proxy upstream actions \( -name '*_accelerator.*.so' -o -name '*_leaf.*.so' \) -delete
