# Task Profiler. `make` lists what can be done.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NODE_MODULES := profiler/report_page/node_modules
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' profiler/core/version.py)
IMAGE ?= task-profiler:$(VERSION)
TARGET ?= monitor
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/task-profiler
OPENTOFU_VERSION := 1.10.10
OPENTOFU := $(CACHE)/opentofu/tofu-$(OPENTOFU_VERSION)
ACTIONLINT_VERSION := 1.7.12
ACTIONLINT := $(CACHE)/actionlint-$(ACTIONLINT_VERSION)/actionlint
# AWS's own programs, built from the repositories of these tags, or given as paths.
ECS_AGENT_VERSION := 1.105.1
LAMBDA_RIE_VERSION := 1.30
ECS_AGENT ?= $(CACHE)/real/ecs-agent-$(ECS_AGENT_VERSION)
LAMBDA_RIE ?= $(CACHE)/real/aws-lambda-rie-$(LAMBDA_RIE_VERSION)
AWS_SOURCES := https://github.com/aws
PAUSE := github.com/aws/amazon-ecs-agent/agent/config.DefaultPauseContainer
OTELCOL_VERSION := 0.150.0
OTELCOL := $(CACHE)/otelcol-$(OTELCOL_VERSION)/otelcol
# With PLATFORMS, buildx builds for each of them. It loads a single one into Docker, and pushes with PUSH=1.
BUILD = docker $(if $(PLATFORMS),buildx build --platform '$(PLATFORMS)' $(if $(PUSH),--push,$(if $(findstring $(comma),$(PLATFORMS)),,--load)),build)
comma := ,
OTHER_PYTHONS = $(BIN)/python -m tools.other_pythons | sort --version-sort $(if $(NEWEST),| tail -n 1)
# Docker takes the values from the environment, so that a secret in an address is not printed.
given = $(foreach name,$(1),$(if $(filter undefined,$(origin $(name))),,--build-arg $(name)))

# Without its cache, each process of the tests compiles all of them again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test pythons python-environments slow fuzz e2e e2e-arm64 e2e-cgroup2 search real browser iac orchestrators engines gpu endurance downloads lint types check javascript format schema page-types kibana commands lambda-zip bench bench-instance bench-local bench-forwarder bench-nvml image release-check actionlint prometheus otlp waits bench-why bench-compare hashes audit bench-monitor pictures coverage mutants site site-publish clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.runtime ## Profile a real little batch on this machine and show its report
	@$(BIN)/python examples/demo.py $(BIN)/task-profiler build/demo/task-report.html

test: $(VENV)/.dev ## Run the tests that need only Python: unit, contract, integration, faults, simulation (COVERAGE=1: with coverage; LATE=threads|starters|processes|waits: as on a busy machine)
	$(BIN)/pytest --numprocesses auto --maxprocesses 8 --dist loadfile $(if $(COVERAGE),--cov --cov-report=term --hypothesis-profile same-examples)
	$(if $(COVERAGE),$(BIN)/python -m tools.coverage_floors)

pythons: python-environments ## The unit and contract tests with the machine's other Pythons from 3.11 on, of PATH and pyenv (NEWEST=1: with the newest)
	@$(OTHER_PYTHONS) | while read -r version python; do \
	  echo "Python $$version ($$python)"; \
	  $(VENV)-python$$version/bin/pytest tests/unit tests/contract --numprocesses auto --maxprocesses 8 --dist loadfile </dev/null || exit 1; done

# What .ci/run prepares while other tests run.
python-environments: $(VENV)/.dev
	@$(OTHER_PYTHONS) | while read -r version python; do environment=$(VENV)-python$$version; \
	  $(MAKE) --no-print-directory VENV=$$environment PYTHON=$$python $$environment/.dev </dev/null || exit 1; done

slow: $(VENV)/.dev ## The tests that take long by their nature: whole sweeps, simulated nights, years and families, all examples of properties, the demo, the forwarder's zip (needs pip's package index, Java and Maven)
	$(BIN)/pytest -m '(slow or hypothesis) and not waits and not accuracy' --hypothesis-profile same-examples --timeout 0 --numprocesses auto --maxprocesses 8 --dist loadfile tests/contract tests/integration tests/faults tests/simulation $$(grep -rlF -e mark.slow -e mark.diagonal -e 'from hypothesis import' --include='test_*.py' tests/unit)
	$(BIN)/pytest -m slow --timeout 0 tests/search --numprocesses 4 --dist loadscope

fuzz: $(VENV)/.dev ## Search for inputs that break a parser, a reader or the forwarder (MINUTES=10 or SECONDS=…; SEED=… repeats a round)
	$(BIN)/python -m tools.fuzz --seconds $(or $(SECONDS),$$(( $(or $(MINUTES),10) * 60 ))) $(if $(SEED),--seed $(SEED))

e2e: $(VENV)/.dev ## The monitor in real containers (needs root, or a Docker daemon that answers)
	$(BIN)/pytest tests/e2e --numprocesses 2 --dist loadfile

e2e-arm64: $(VENV)/.dev ## The image for arm64, built and started under qemu-user (needs root, Docker, debootstrap and qemu-user-static)
	$(BIN)/pytest tests/arm64 --timeout 0

e2e-cgroup2: $(VENV)/.dev ## The run command and the monitor on cgroup v2, in a virtual machine (needs QEMU, debootstrap and root)
	$(BIN)/pytest tests/cgroup2 --timeout 0

search: $(VENV)/.dev ## The forwarder against real Elasticsearch and OpenSearch (needs Java and Maven)
	$(BIN)/pytest tests/search --numprocesses 4 --dist loadscope

real: $(VENV)/.dev ## One night under AWS's own ECS agent and Lambda emulator (needs root, Docker, Java, Maven; Go and GitHub, or ECS_AGENT=… LAMBDA_RIE=…; RECORD=1 records the agent)
	@if command -v go >/dev/null && git ls-remote --quiet $(AWS_SOURCES)/amazon-ecs-agent HEAD >/dev/null 2>&1; then \
	  nice $(MAKE) --no-print-directory '$(ECS_AGENT)' '$(LAMBDA_RIE)'; fi
	@export ECS_AGENT='$(ECS_AGENT)' LAMBDA_RIE='$(LAMBDA_RIE)'; missing=$$($(BIN)/python -m tests.real.programs) || exit 1; \
	if [ -n "$$missing" ]; then echo "skipped: make real needs $$missing"; else RECORD="$(RECORD)" $(BIN)/pytest tests/real --timeout 0; fi

browser: $(VENV)/.dev $(NODE_MODULES)/.made ## The report page in a real Chromium (needs Debian's chromium, and Node.js with npm for axe-core)
	$(BIN)/pytest tests/browser --numprocesses 2 --dist loadfile

iac: $(VENV)/.dev $(VENV)/.iac $(OPENTOFU) ## The monitor in CDK, TypeScript and Terraform (needs Node.js, npm and Go)
	$(BIN)/pytest tests/iac

prometheus: $(VENV)/.dev ## The Grafana dashboard's queries on a real Prometheus (needs Debian's prometheus)
	$(BIN)/pytest tests/prometheus

otlp: $(VENV)/.dev $(if $(shell command -v go 2>/dev/null),$(OTELCOL)) ## The export to a real OpenTelemetry Collector (needs Go, which builds it once in about three minutes)
	$(BIN)/pytest tests/otlp

waits: $(VENV)/.dev $(VENV)-waits/.made ## What runs of real frameworks, languages and servers waited for (needs Node.js, Java, and Debian's redis-server, postgresql, socat, nginx-light, openssh-server, dbus, parallel; Go if it is there; for containers root or Docker)
	$(BIN)/pytest -m waits --timeout 0 tests/waits tests/integration/test_known_waits.py tests/e2e/test_time_breakdown.py

orchestrators: $(VENV)/.dev $(patsubst %,$(VENV)-orchestrators/%/.made,airflow dagster prefect snakemake) ## What Airflow, Dagster and Prefect say about a task with a monitor, and what Nextflow and Snakemake read (ten minutes; WRITE=1 writes the table of the page)
	WRITE='$(WRITE)' $(BIN)/pytest tests/orchestrators --timeout 0

engines: $(VENV)/.dev $(VENV)-orchestrators/snakemake/.made ## What Nextflow and Snakemake read, and Snakemake's rules in the wrapper (needs Java and Maven)
	$(BIN)/pytest tests/orchestrators/test_engine_configuration.py --timeout 0

gpu: $(VENV)/.dev ## The GPU numbers under a real load, and what is said of known programs, into build/gpu (needs an NVIDIA GPU and its driver; nine minutes)
	$(BIN)/python -m tests.gpu.on_device --into build/gpu

endurance: $(VENV)/.dev ## A simulated month, and an hour of real time at 20 samples a second
	$(BIN)/pytest tests/endurance --timeout 0

downloads: $(VENV)/.dev $(VENV)-site/.made $(NODE_MODULES)/.made ## Fetch what the other tests need, so that they do not wait for it (needs npm, Maven, debootstrap and root)
	$(BIN)/python -m tests.downloads

lint: $(VENV)/.dev ## Style and format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/.dev ## mypy --strict on code and tests
	$(BIN)/mypy

check: lint types ## What must hold before a commit besides the tests

javascript: $(NODE_MODULES)/.made ## Style, format and tests of the report page's JavaScript (needs Node.js 18 or newer with npm)
	cd profiler/report_page && npm run --silent check && npm test --silent

format: $(VENV)/.dev ## Rewrite the sources in the project's format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

page-types: $(VENV)/.dev ## Write the JavaScript types of the report page's rows
	$(BIN)/python -m tools.page_types

kibana: $(VENV)/.dev ## Write the dashboards and the index templates
	$(BIN)/python kibana/build.py

commands: $(VENV)/.dev ## Write docs/commands.md from the commands, and what resize leaves alone
	$(BIN)/python tools/commands_page.py
	$(BIN)/python tools/left_alone.py

lambda-zip: $(VENV)/.venv ## Build dist/task-profiler-forwarder.zip, the same bytes each time
	$(BIN)/python -m profiler.aws_account.setup.forwarder_zip dist/task-profiler-forwarder.zip

hashes: $(VENV)/.dev ## Write the hashes of the zip's and the image's wheels into the files that pin their versions
	$(BIN)/python -m tools.wheel_hashes

audit: $(VENV)/.venv ## Look up what the zip and the image are made of in PyPI's list of vulnerabilities
	@test -d $(VENV)-audit || $(PYTHON) -m venv $(VENV)-audit
	@$(VENV)-audit/bin/pip install --quiet --disable-pip-version-check pip-audit
	$(VENV)-audit/bin/pip-audit --strict --require-hashes --disable-pip $(addprefix --requirement ,lambda/requirements.txt $(wildcard taskdef/requirements/*.txt))

image: ## Build the container image of the monitor (needs Docker; docs/task-definitions.md has its variables)
	@case '$(TARGET)' in monitor|neuron) ;; *) \
	  echo "There is no image called '$(TARGET)': run make image with TARGET=monitor or TARGET=neuron" >&2; exit 2;; esac
	@case '$(if $(PLATFORMS),$(TARGET))' in neuron) \
	  echo "TARGET=neuron takes no PLATFORMS: build it with BUILD_OPTIONS='--platform linux/amd64'" >&2; exit 2;; esac
	@$(if $(PLATFORMS),docker buildx version >/dev/null 2>&1,true) || \
	  { echo "PLATFORMS needs Docker's plugin buildx: install it (https://docs.docker.com/build/), or leave PLATFORMS out" >&2; exit 1; }
	@docker version >/dev/null 2>&1 || \
	  { echo "No Docker daemon answers: install Docker, start it, and run make image again" >&2; exit 1; }
	$(BUILD) $(BUILD_OPTIONS) --file taskdef/Dockerfile --tag '$(IMAGE)' --build-arg VERSION='$(VERSION)' \
	  $(call given,BASE_IMAGE BUILD_IMAGE EXTRAS PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST) .
ifeq ($(TARGET),neuron)
	docker build $(BUILD_OPTIONS) --file taskdef/Dockerfile.neuron --tag '$(IMAGE)-neuron' \
	  --build-arg MONITOR_IMAGE='$(IMAGE)' $(call given,TOOLS_IMAGE NEURON_REPOSITORY NEURON_SUITE NEURON_TOOLS) .
endif

release-check: $(VENV)-release/.made ## Build everything of a release into dist/release, without publishing, and try the wheel in an empty environment
	$(VENV)-release/bin/python -m tools.release
	@if docker version >/dev/null 2>&1; then $(MAKE) --no-print-directory image; \
	  else echo "No Docker daemon answers: the image was not built"; fi

actionlint: $(ACTIONLINT) ## Check the workflows of GitHub Actions (needs Go, which builds actionlint once)
	$(ACTIONLINT) .github/workflows/*.yml examples/*.yml

schema: $(VENV)/.dev ## Write the JSON Schemas of the record, the events and the commands from their types
	$(BIN)/task-profiler schema > profiler/schema/task-report.v1.json
	for name in task-run-ended task-run-notice schedule-notice night-summary batch-job-notice; do \
	  $(BIN)/python -c "import json, sys; from profiler.forwarder.notifications.event_details import DETAILS; from profiler.record.model_base import json_schema_of_type; print(json.dumps(json_schema_of_type(*DETAILS[sys.argv[1]]), indent=2))" $$name > docs/$$name.schema.json || exit 1; done
	$(BIN)/python -m tools.command_schemas

bench: $(VENV)/.dev $(VENV)-installed/.made $(VENV)-rivals/.made ## Measure everything against its figures: build/bench/bench.md and .json (a quarter of an hour; QUICK=1: seven minutes)
	$(BIN)/python -m benchmarks --installed $(VENV)-installed/bin --rivals $(VENV)-rivals/bin $(if $(QUICK),--quick)

bench-monitor: $(VENV)/.dev ## Measure the monitor alone (about four minutes)
	$(BIN)/python -m benchmarks.monitor

bench-instance: $(VENV)/.dev ## Measure one monitor for an instance: make bench-instance SOCKET=/var/run/docker.sock IMAGE=one-with-python (needs root)
	$(BIN)/python -m benchmarks.instance $(SOCKET) $(IMAGE)

bench-local: $(VENV)/.dev $(VENV)-installed/.made $(VENV)-rivals/.made ## Compare `run` with its rivals from PyPI, and measure short runs (about ten minutes)
	$(BIN)/python -m benchmarks.local $(VENV)-installed/bin $(VENV)-rivals/bin
	$(BIN)/python -m benchmarks.short_runs $(VENV)-installed/bin

bench-nvml: $(VENV)/.dev ## Measure what watching eight GPUs costs (needs a C compiler)
	$(BIN)/python -m benchmarks.nvml

bench-forwarder: $(VENV)/.dev ## Measure the forwarder, with a real Elasticsearch that crashes (about two minutes)
	$(BIN)/python -m benchmarks.forwarder

bench-why: $(VENV)/.dev ## Check time breakdown and call stacks against known programs, with costs and kills (half an hour; QUICK=1: nine minutes; most needs root)
	QUICK='$(QUICK)' $(BIN)/pytest -m accuracy --timeout 0 -s tests/simulation/test_time_accuracy.py
	ATTACHES=$(if $(QUICK),100,1000) $(BIN)/pytest -m '' --timeout 0 -s tests/faults/test_killed_stack_readers.py
	$(BIN)/python -m benchmarks --only why_threads why_cost --output build/bench/why $(if $(QUICK),--quick)
	$(BIN)/python -m tests.waits.time_breakdown $(if $(QUICK),--lanes test)

bench-compare: $(VENV)/.dev ## Count how often `compare` is right, for simulated runs (half an hour; QUICK=1: two minutes)
	$(BIN)/python -m benchmarks --only comparison --output build/bench/compare $(if $(QUICK),--quick)

pictures: $(VENV)/.dev ## Make the pictures of the documentation (needs Debian's chromium; of the dashboards with KIBANA=URL ELASTICSEARCH=URL, OPENSEARCH_DASHBOARDS=URL OPENSEARCH=URL)
	$(BIN)/python -m tools.terminal_picture
	$(BIN)/python -m tools.pictures
	$(if $(KIBANA),$(BIN)/python -m tools.pictures --name kibana --dashboards '$(KIBANA)' --cluster '$(ELASTICSEARCH)')
	$(if $(OPENSEARCH_DASHBOARDS),$(BIN)/python -m tools.pictures --dashboards '$(OPENSEARCH_DASHBOARDS)' --cluster '$(OPENSEARCH)')

site: $(VENV)-site/.made ## Build the documentation's site into site/; fails for a broken link or a page without a place
	NO_MKDOCS_2_WARNING=1 $(VENV)-site/bin/mkdocs build --config-file docs/site/mkdocs.yml

site-publish: $(VENV)-site/.made ## Commit the site to the branch gh-pages and push it: DOCS_REF=main as "dev", DOCS_REF=vX.Y.Z as "X.Y" and "latest"
	@case '$(DOCS_REF)' in v*) version='$(basename $(DOCS_REF:v%=%))'; alias=latest;; main) version=dev; alias=;; \
	  *) echo "Set DOCS_REF to main, or to a tag vX.Y.Z" >&2; exit 2;; esac; \
	export DOCS_REF='$(DOCS_REF)' PATH="$(abspath $(VENV)-site/bin):$$PATH"; \
	mike deploy --config-file docs/site/mkdocs.yml --push --update-aliases $$version $$alias && \
	if [ -n "$$alias" ] || ! mike list --config-file docs/site/mkdocs.yml latest >/dev/null 2>&1; then mike set-default --config-file docs/site/mkdocs.yml --push $${alias:-dev}; fi

coverage: ## `make test`, its unit tests with branch coverage; fails below the floors in pyproject.toml
	@$(MAKE) --no-print-directory test COVERAGE=1

mutants: $(VENV)-mutants/.made ## Break six pure modules in some 1000 places and list what no test noticed (a few minutes)
	rm -rf mutants
	$(VENV)-mutants/bin/mutmut run
	$(VENV)-mutants/bin/mutmut results

clean: ## Remove what the other targets built and installed in this folder, not their downloads in ~/.cache/task-profiler
	rm -rf $(VENV) $(VENV)-installed $(VENV)-rivals $(VENV)-audit $(VENV)-mutants $(VENV)-orchestrators $(VENV)-release $(VENV)-site $(VENV)-waits $(VENV)-python3.* mutants dist build site .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache $(NODE_MODULES)

$(VENV)/.venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Task Profiler needs Python 3.11 or newer: run make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "Python's venv module is missing: on Debian and Ubuntu, apt-get install python3-venv" >&2; exit 1; }
	@touch $@

$(VENV)/.runtime: $(VENV)/.venv pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.venv pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[dev]'
	@touch $@ $(VENV)/.runtime

$(NODE_MODULES)/.made: profiler/report_page/package-lock.json
	@command -v npm >/dev/null || { echo "npm is missing: on Debian and Ubuntu, apt-get install nodejs npm" >&2; exit 1; }
	@cd profiler/report_page && npm ci --silent --no-audit --no-fund
	@touch $@

$(VENV)/.iac: $(VENV)/.dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[cdk]'
	@npm install --silent --no-audit --no-fund --prefix '$(CACHE)/cdk-typescript' aws-cdk-lib@2 constructs@10 typescript@5
	@touch $@

# `go install` refuses the module because of its replace directives, so it is built in its own folder.
$(OPENTOFU):
	@mkdir -p $(@D)
	cd "$$(go mod download -json github.com/opentofu/opentofu@v$(OPENTOFU_VERSION) | sed -n 's/^.*"Dir": "\(.*\)",$$/\1/p')" && \
	  nice go build -o $@ ./cmd/tofu

$(ACTIONLINT):
	GOBIN='$(@D)' go install github.com/rhysd/actionlint/cmd/actionlint@v$(ACTIONLINT_VERSION)

# The agent asks for a toolchain of its own, and -mod=mod takes its modules from the proxy.
$(CACHE)/real/ecs-agent-$(ECS_AGENT_VERSION):
	@rm -rf '$@-source'
	@git clone --quiet --depth 1 --branch v$(ECS_AGENT_VERSION) $(AWS_SOURCES)/amazon-ecs-agent '$@-source'
	cd '$@-source/agent' && sed -i '/^toolchain /d' go.mod && GOFLAGS=-mod=mod GOTOOLCHAIN=local go build -o '$@' -ldflags \
	  '-X $(PAUSE)ImageName=amazon/amazon-ecs-pause -X $(PAUSE)Tag=0.1.0' .
	@rm -rf '$@-source'

$(CACHE)/real/aws-lambda-rie-$(LAMBDA_RIE_VERSION):
	@rm -rf '$@-source'
	@git clone --quiet --depth 1 --branch v$(LAMBDA_RIE_VERSION) $(AWS_SOURCES)/aws-lambda-runtime-interface-emulator '$@-source'
	cd '$@-source' && CGO_ENABLED=0 GOFLAGS=-mod=mod go build -o '$@' ./cmd/aws-lambda-rie
	@rm -rf '$@-source'

$(OTELCOL): # the builder writes its files into the current folder
	@mkdir -p $(@D)
	cd $(@D) && nice go run go.opentelemetry.io/collector/cmd/builder@v$(OTELCOL_VERSION) --config '$(CURDIR)/tests/otlp/builder.yaml'

$(VENV)-mutants/.made:
	@$(PYTHON) -m venv $(VENV)-mutants
	@$(VENV)-mutants/bin/pip install --quiet --disable-pip-version-check --editable . \
	  mutmut==3.8.1 hypothesis pytest pytest-timeout pytest-xdist
	@touch $@

$(VENV)-waits/.made: tests/waits/requirements.txt
	@rm -rf $(VENV)-waits
	@$(PYTHON) -m venv $(VENV)-waits
	@$(VENV)-waits/bin/pip install --quiet --disable-pip-version-check --requirement tests/waits/requirements.txt
	@touch $@

$(VENV)-site/.made: Makefile
	@$(PYTHON) -m venv $(VENV)-site
	@$(VENV)-site/bin/pip install --quiet --disable-pip-version-check mkdocs==1.6.1 'mkdocs-material>=9.6,<10' 'mike>=2.1,<3'
	@touch $@

$(VENV)-release/.made: pyproject.toml
	@$(PYTHON) -m venv $(VENV)-release
	@$(VENV)-release/bin/pip install --quiet --disable-pip-version-check 'hatchling>=1.25' 'cyclonedx-bom>=7.3,<8'
	@touch $@

# uv resolves Airflow in seconds, pip in many minutes.
$(VENV)-orchestrators/uv/.made:
	@rm -rf $(@D)
	@$(PYTHON) -m venv $(@D)
	@$(@D)/bin/pip install --quiet --disable-pip-version-check 'uv>=0.9'
	@touch $@

$(VENV)-orchestrators/%/.made: tests/orchestrators/%.txt $(VENV)-orchestrators/uv/.made
	@rm -rf $(@D)
	@$(VENV)-orchestrators/uv/bin/uv venv --quiet --python $(PYTHON) $(@D)
	@$(VENV)-orchestrators/uv/bin/uv pip install --quiet --python $(@D)/bin/python --requirements $<
	@touch $@

# With pip, as everything that CI installs.
$(VENV)-orchestrators/snakemake/.made: tests/orchestrators/snakemake.txt
	@rm -rf $(@D)
	@$(PYTHON) -m venv $(@D)
	@$(@D)/bin/pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

# As users install it: not editable, and without the tools of development.
$(VENV)-installed/.made: pyproject.toml $(shell find profiler lambda -name '*.py')
	@rm -rf $(VENV)-installed
	@$(PYTHON) -m venv --upgrade-deps $(VENV)-installed
	@$(VENV)-installed/bin/pip install --quiet --disable-pip-version-check .
	@touch $@

$(VENV)-rivals/.made:
	@$(PYTHON) -m venv --upgrade-deps $(VENV)-rivals
	@$(VENV)-rivals/bin/pip install --quiet --disable-pip-version-check con-duct psrecord
	@touch $@
