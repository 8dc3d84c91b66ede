# Latent Containers. `make help` lists the targets; `.ci/run` calls the same ones.
VENV   := .venv
BIN    := $(VENV)/bin
PYTHON ?= python3
STAMP  := $(VENV)/.installed
SOURCES := core mcp-server workers client cli tests benchmarks scripts migrations conftest.py
# The repository's own manifests.
export LLC_MANIFEST_DIR ?= $(CURDIR)/manifests

# What rapidocr shares with requirements.lock, which pins it.
OF_BOTH := certifi charset-normalizer colorama idna numpy pillow pyyaml urllib3

.DEFAULT_GOAL := help
.PHONY: help setup smoke test test-all check fix up migrate golden-queries bench lock size ocr

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
	$(BIN)/python scripts/smoke.py

# What fails among others is run once more alone: deadlines of tests are generous, but machines are shared. Twice is a failure.
test: setup  ## the tests, on real services (about a quarter of an hour on two cores)
	$(BIN)/pytest -n 2 -q -m "not slow" || $(BIN)/pytest -q -m "not slow" --last-failed

test-all: setup  ## and the slow ones: chaos, frozen workers, soaks
	$(BIN)/pytest -n 2 -q

check: setup  ## format, lint, types, import direction, manifests
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy core/src mcp-server/src workers/src client/src cli/src scripts benchmarks
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_manifests.py

fix: setup  ## format, and mend what can be mended by itself
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

up: setup  ## start everything on 127.0.0.1:7801
	$(BIN)/latent up

migrate: setup  ## apply the database migrations
	$(BIN)/latent migrate

golden-queries: setup  ## retrieval quality of the sample container against its gates
	$(BIN)/python scripts/golden_queries.py

bench: setup  ## speed, memory and quality; DATA=<folder> adds the judged sets
	$(BIN)/python -m benchmarks.run $(if $(DATA),--data $(DATA),) $(if $(CACHE),--cache $(CACHE),) $(BENCH)

size: setup  ## what the embedded default needs on disk
	$(BIN)/python benchmarks/size.py

lock:  ## write the lock files again from the pyproject files (needs uv)
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --quiet \
		--group dev pyproject.toml core/pyproject.toml mcp-server/pyproject.toml workers/pyproject.toml client/pyproject.toml cli/pyproject.toml \
		--no-emit-package latent-core --no-emit-package latent-gateway --no-emit-package latent-workers \
		--no-emit-package latent-client --no-emit-package latent-cli -o requirements.lock
	echo 'rapidocr>=3.4' | uv pip compile - -c requirements.lock --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
		--no-header --quiet $(addprefix --no-emit-package ,$(OF_BOTH)) -o requirements-ocr.lock
