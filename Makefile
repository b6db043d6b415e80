# Every target works as the first command on a fresh machine: it makes .venv, installs what it needs, and runs.
PYTHON ?= python3
TEXT ?= Thank you for calling.
OUT ?= speech.wav
# PyPI's torch for Linux is the CUDA build. For the CPU build name PyTorch's CPU wheel index here (README, "Installing").
TORCH ?= torch==2.13.0
TORCH_INDEX ?=
# Test files that run at once. Their workers and servers share the cores, so more than two are no faster.
AT_ONCE ?= 2
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: install say serve test check format lint types tests test-long gpu gpu-tests bench clean
.DEFAULT_GOAL := check

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Antiphon needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) "$(TORCH)"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

.venv/installed-test: .venv/installed tests/parity/requirements.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test,check]'
	$(BIN)/python -m pip install --quiet --no-deps --requirement tests/parity/requirements.txt
	if command -v npm >/dev/null; then npm install --prefix tests/integration/node --no-package-lock --no-audit --no-fund --silent; fi
	touch $@

install: .venv/installed

say: .venv/installed
	@$(BIN)/antiphon say --out "$(OUT)" -- "$(TEXT)"

serve: .venv/installed
	$(BIN)/antiphon serve

test: tests

check: format lint types tests

format: .venv/installed-test
	$(BIN)/ruff format --check .

lint: .venv/installed-test
	$(BIN)/ruff check .

types: .venv/installed-test
	$(BIN)/mypy

tests: .venv/installed-test
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/pytest -m "not long and not gpu" --numprocesses $(AT_ONCE) --dist loadfile

test-long: .venv/installed-test
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/pytest -m long --timeout 7200

gpu: .venv/installed-test
	$(BIN)/python -m tests.bench.gpu --json gpu.json

gpu-tests: .venv/installed-test
	$(BIN)/pytest -m gpu

bench: .venv/installed-test
	mkdir -p bench-results
	$(BIN)/python -m tests.bench.step --json bench-results/step.json --plot bench-results/step.png
	$(BIN)/python -m tests.bench.first_audio --json bench-results/first_audio.json
	$(BIN)/antiphon bench --json bench-results/live.json

clean:
	rm -rf .venv build out *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
