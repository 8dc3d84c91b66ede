# Latent Containers. `make help` lists the targets; `.ci/run` calls the same ones.
VENV   := .venv
BIN    := $(VENV)/bin
PYTHON ?= python3
STAMP  := $(VENV)/.installed
SOURCES := core mcp-server workers client cli tests benchmarks scripts distribution migrations conftest.py
# Tests start hundreds of Python processes. Without cached bytecode each of them compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE

# What rapidocr shares with requirements.lock, which pins it.
OF_BOTH := certifi charset-normalizer colorama idna numpy pillow pyyaml urllib3

# STACK=compose: servers in containers instead of the embedded services. WITH="small observability" adds overrides of docker/.
STACK ?= embedded
WITH  ?=
ON     = --stack $(STACK) $(if $(WITH),--with $(WITH),)
COMPOSE = $(shell docker compose version >/dev/null 2>&1 && echo docker compose || echo docker-compose) \
	--project-name latent --file docker-compose.yml $(foreach name,$(WITH),--file docker/$(name).yml)

.DEFAULT_GOAL := help
.PHONY: stop logs ps shell-pg down secrets docker-trial conformance clients audit help setup smoke screenshots test test-processes test-console test-all test-servers fuzz check fix up migrate regression compare revision-dump upgrade-trial surfaces golden-queries bench lock size ocr soak wheels test-install sbom release-check

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(STAMP)  ## make .venv with everything, from the lock file

$(STAMP): requirements.lock core/pyproject.toml mcp-server/pyproject.toml workers/pyproject.toml client/pyproject.toml cli/pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; name one with PYTHON=…")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e core -e client -e mcp-server -e workers -e cli
	@$(MAKE) --no-print-directory ocr
	@touch $(STAMP)

# Tesseract reads better and four times as fast; without it a wheel with models of its own does.
ocr: requirements-ocr.lock  ## an OCR engine, if the system has none
	@command -v tesseract >/dev/null || $(BIN)/pip install --quiet --disable-pip-version-check --retries 1 --timeout 15 --require-hashes --no-deps -r requirements-ocr.lock \
		|| echo "no OCR engine: scanned pages will not be read until tesseract-ocr is installed, or 'make ocr' is run again"

smoke: setup  ## a fresh stack, the sample container, three searches: the whole way, in one command
	$(BIN)/python -m scripts.smoke $(ON)

# Their tests start, stop and kill installations of their own.
WHOLE := tests/processes tests/chaos tests/console

# No test may need a second run to pass. Tests wait for processes much of the time: four share two cores.
test: setup  ## the tests, on real services; all but those of test-processes and the slow ones (under 10 minutes on two cores)
	$(BIN)/pytest -n 4 --dist loadfile --no-loadscope-reorder -q -m "not slow" $(WHOLE:%=--ignore=%)

test-processes: setup  ## whole installations: started, stopped, killed, upgraded, and the console in a browser
	$(BIN)/pytest -n 4 --dist loadfile --no-loadscope-reorder -q -m "not slow" $(WHOLE)

test-console: setup  ## the console in a browser: with the mouse, by keyboard alone, at 390 pixels (needs Chromium)
	$(BIN)/pytest -n 2 --dist loadfile -q tests/console

test-all: setup  ## and the slow ones: chaos, every crash point, soaks (nightly in the workflow)
	$(BIN)/pytest -n 4 --dist loadfile --no-loadscope-reorder -q

# POSTGRES=16 for the older version; LLC_TEST_… for servers that run already.
test-servers: setup  ## the end-to-end tests with a gateway and a worker on servers
	$(BIN)/python -m scripts.servers --postgres $(or $(POSTGRES),18) -- $(BIN)/pytest -q tests \
		core/tests/vectors/test_vectors_qdrant.py core/tests/vectors/test_qdrant_stand_in.py \
		core/tests/blobs/test_blobs_s3.py core/tests/db/test_poolers.py

# CHUNKS="10000 100000", PEERS="bm25s lancedb sqlite chroma", QDRANT=http://…, DATA=folder of judged sets, SETS="cisi lisa".
# A size or set that is measured again is replaced as a whole. With DATA alone only quality is measured. Environments of the
# others: build/compare (1 GB; with txtai, which must be named in PEERS and brings PyTorch, 7 GB).
compare: setup  ## other libraries beside ours, in one run; writes docs/comparison.md
	$(BIN)/python -m benchmarks.compare.run --figures benchmarks/compare/figures.json --page docs/comparison.md \
		$(if $(CHUNKS)$(DATA),--chunks $(CHUNKS),) $(if $(PEERS),--peers $(PEERS),) $(if $(QDRANT),--qdrant $(QDRANT),) \
		$(if $(DATA),--judged $(DATA),) $(if $(SETS),--sets $(SETS),)

# BASE=revision; processor time of start, ingest and search in turns with it, and an error if one is worse beyond noise.
regression: setup  ## this version against the commit before it (3 minutes)
	$(BIN)/python -m benchmarks.regression --base $(or $(BASE),HEAD~1)

# OUT=folder; looks at every page in light, dark and at 390 pixels, and fails on what axe-core finds serious.
screenshots: setup  ## pictures of every page of the console
	$(BIN)/python -m scripts.screenshots --out $(or $(OUT),screenshots)

# FUZZ_SECONDS=120 for a quick look; FUZZ_SLOWEST=10 where others use the machine too: seconds an answer may take.
fuzz: setup  ## the served schema, fuzzed as every role (20 minutes)
	$(BIN)/python -m scripts.fuzz --seconds $(or $(FUZZ_SECONDS),1200) --slowest $(or $(FUZZ_SLOWEST),2)

soak: setup  ## uploads against the collection of garbage, and a crash at every named point
	$(BIN)/pytest -q core/tests/blobs/test_blob_races.py tests/chaos/test_failpoints.py tests/chaos/test_transfer_crashes.py

check: setup  ## format, lint, types, import direction, manifests
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_manifests.py
	$(BIN)/python scripts/check_words.py

fix: setup  ## format, and mend what can be mended by itself
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

ifeq ($(STACK),compose)
# The images' labels say what they were built from.
export LATENT_REVISION ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
up: secrets
	$(COMPOSE) up --detach --build
	@for second in $$(seq 150); do \
		$(COMPOSE) exec -T gateway python -m latent_core.runtime.probe http://127.0.0.1:7801/readyz && exit 0; sleep 2; \
	done; $(COMPOSE) ps; $(COMPOSE) logs --tail=40; exit 1
else
up: setup  ## start everything on 127.0.0.1:7801; STACK=compose: in containers
	$(BIN)/latent up
endif

stop:  ## stop the compose stack
	$(COMPOSE) stop

logs:  ## follow the logs of the compose stack
	$(COMPOSE) logs --follow --tail=100

ps:  ## what runs of the compose stack, and how it is
	$(COMPOSE) ps

shell-pg:  ## psql on the compose stack's database
	$(COMPOSE) exec postgres psql --username=latent latent

down:  ## remove the compose stack's containers; the volumes stay
	$(COMPOSE) down

secrets:  ## make what is missing in secrets/
	@$(PYTHON) scripts/compose_secrets.py

docker-trial: setup  ## build the images on a stand-in base and start what can be started, where no image can be pulled
	$(BIN)/python -m scripts.docker_trial

conformance: setup  ## the official MCP conformance suite and the Inspector, against our own HTTP stack (needs Node 22)
	$(BIN)/pytest -q tests/mcp/test_mcp_conformance.py -m "slow or not slow" --timeout=900

clients: setup  ## agents and SDKs by others against our gateway, with a scripted model (needs npm; 3 GB below build/)
	$(BIN)/pytest -q -rs tests/mcp/test_clients.py -m "slow or not slow" --timeout=900

audit:  ## known holes in the locked dependencies
	$(PYTHON) -m venv build/audit
	build/audit/bin/pip install --quiet --disable-pip-version-check "pip-audit>=2.9,<3"
	for lock in requirements.lock requirements-ocr.lock docker/*.lock; do build/audit/bin/pip-audit --disable-pip --require-hashes --requirement $$lock || exit 1; done

migrate: setup  ## apply the database migrations
	$(BIN)/latent migrate

revision-dump: setup  ## the dump that the upgrade test migrates; run it before a new revision is written
	$(BIN)/python -m scripts.dump_revision

# The earlier release is checked out and set up by its own lock file. FIXTURE= also writes tests/data/installation_….
upgrade-trial: setup  ## fill a data directory with the release before (or FROM=<tag>), start this one on it, try to go back
	$(BIN)/python -m scripts.upgrade_trial $(if $(FROM),--from $(FROM)) $(if $(FIXTURE),--fixture $(FIXTURE))

surfaces: setup  ## every difference of API, tools, commands and manifest from version 0.1, with its reason
	$(BIN)/python -m scripts.surfaces compare tests/data/surfaces_0.1.json.gz

golden-queries: setup  ## retrieval quality of the sample container against its gates; exact lines and pages of another
	$(BIN)/python -m scripts.golden_queries $(ON)

bench: setup  ## speed, memory and quality; DATA=<folder> adds the judged sets
	$(BIN)/python -m benchmarks.run $(if $(DATA),--data $(DATA),) $(if $(CACHE),--cache $(CACHE),) $(BENCH)

languages: setup  ## the multilingual model on the judged sets of DATA=<folder>; an error if a bar is missed (SETS=xquad/de …)
	@[ -n "$(DATA)" ] || { echo "name a folder: make languages DATA=…"; exit 2; }
	$(BIN)/python -m benchmarks.run --only quality --data $(DATA) --sets $(or $(SETS),xquad/de xquad/es) \
		--embedder local-multilingual --defaults-only --gate $(if $(CACHE),--cache $(CACHE),)

size: setup  ## what the embedded default needs on disk
	$(BIN)/python benchmarks/size.py

# What a user installs: the distribution (its parts are the five packages), and data without the dependencies of others.
wheels: setup  ## build wheels and source archive into OUT=<folder>
	@[ -n "$(OUT)" ] || { echo "name a folder: make wheels OUT=…"; exit 2; }
	mkdir -p "$(OUT)"
	rm -f "$(OUT)"/latent_containers*
	$(BIN)/python -m hatchling build -d "$(abspath $(OUT))"
	$(BIN)/python -m scripts.data_wheels "$(OUT)"

test-install: setup  ## install from WHEELS=<folder> as a user would, run the smoke outside the checkout, look for missing wheels
	@[ -n "$(WHEELS)" ] || { echo "name the folder of make wheels: make test-install WHEELS=…"; exit 2; }
	$(BIN)/python -m scripts.install_trial "$(WHEELS)" $(TRIAL)

sbom:  ## what an install from WHEELS=<folder> holds, as CycloneDX, into OUT=<folder>
	@[ -n "$(WHEELS)" ] && [ -n "$(OUT)" ] || { echo "name two folders: make sbom WHEELS=… OUT=…"; exit 2; }
	rm -rf build/sbom && $(PYTHON) -m venv build/sbom/tool && $(PYTHON) -m venv --without-pip build/sbom/installed
	build/sbom/tool/bin/pip install --quiet --disable-pip-version-check "cyclonedx-bom>=7,<8" "pip>=24"
	build/sbom/tool/bin/pip --python build/sbom/installed/bin/python install --quiet --disable-pip-version-check \
		--find-links "$(WHEELS)" "$(WHEELS)"/latent_containers-*.whl
	mkdir -p "$(OUT)"
	build/sbom/tool/bin/cyclonedx-py environment --output-reproducible --output-format JSON \
		--output-file "$(OUT)/latent-containers.cdx.json" build/sbom/installed/bin/python

release-check:  ## whether TAG=v… , the version and the changelog agree
	@$(PYTHON) -m scripts.release check "$(TAG)"

# What an image holds: of requirements.lock, what its packages need. By stdin come the command line's own needs, and
# what servers and traces need (latent-core[servers,otel]).
IMAGE_ALSO = 'rich>=14' 'typer>=0.29' 'minio>=7.2.20' 'qdrant-client>=1.20,<2' 'urllib3>=2.5' 'uvloop>=0.22; sys_platform != "win32"' 'opentelemetry-sdk>=1.38' 'opentelemetry-exporter-otlp-proto-http>=1.38'
LOCK_IMAGE = uv pip compile - -c requirements.lock --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-annotate --no-header --quiet --no-emit-package latent-core --no-emit-package latent-client

lock:  ## write the lock files again from the pyproject files (needs uv)
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --quiet \
		--group dev core/pyproject.toml mcp-server/pyproject.toml workers/pyproject.toml client/pyproject.toml cli/pyproject.toml \
		--no-emit-package latent-core --no-emit-package latent-gateway --no-emit-package latent-workers \
		--no-emit-package latent-client --no-emit-package latent-cli -o requirements.lock
	printf '%s\n' $(IMAGE_ALSO) | $(LOCK_IMAGE) mcp-server/pyproject.toml client/pyproject.toml -o docker/gateway.lock
	printf '%s\n' $(IMAGE_ALSO) | $(LOCK_IMAGE) workers/pyproject.toml client/pyproject.toml -o docker/worker.lock
	echo 'hatchling>=1.27' | $(LOCK_IMAGE) -o docker/build.lock
	echo 'rapidocr>=3.4' | uv pip compile - -c requirements.lock --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
		--no-header --quiet $(addprefix --no-emit-package ,$(OF_BOTH)) -o requirements-ocr.lock
