# make venv | demo | test | test-iree | fuzz | fuzz-text | mutants | lint | format | clean
#
# Needs Python 3.11 or newer (with its headers), make and g++; everything else goes into .venv.

PYTHON  ?= python3.11 python3
TORCH   ?= torch==2.13.0
WORKERS ?= 2
N       ?= 1000
MINUTES ?= 5
FUZZ    ?= --paths vllm_ir_eager,interpreter

BIN     := .venv/bin
STAMP   := .venv/.installed

# Several test workers share the machine: one thread each is faster than all threads for everyone.
export OMP_NUM_THREADS ?= 1
export TORCHINDUCTOR_COMPILE_THREADS ?= 1

.PHONY: venv demo test test-iree fuzz fuzz-text mutants lint format clean

venv: $(STAMP)

# torch comes first and alone, so that no other requirement chooses its version.
$(STAMP): pyproject.toml setup.py
	@test -x $(BIN)/python || for python in $(PYTHON); do \
	    if $$python -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        echo "creating .venv with $$python"; $$python -m venv .venv; break; \
	    fi; \
	done
	@test -x $(BIN)/python || { echo "no Python >= 3.11 with venv among: $(PYTHON)" >&2; exit 1; }
	$(BIN)/python -m pip install -q "$(TORCH)" "setuptools>=77" wheel
	$(BIN)/python -m pip install -q --no-build-isolation -e ".[all]"
	touch $@

demo: venv
	$(BIN)/python examples/llama_static_cache.py
	$(BIN)/python examples/paged_decoder.py
	$(BIN)/python examples/xla_decoder.py

test: lint
	$(BIN)/lit -sv test
	$(BIN)/pytest -q -n $(WORKERS)

# A second judge of what is exported. What it depends on is there already, and stays as it is.
test-iree: venv
	$(BIN)/python -m pip install -q --no-deps "iree-base-compiler~=3.13" "iree-base-runtime~=3.13"
	$(BIN)/pytest -q test/backends/stablehlo/test_iree.py

# N random programs compared with eager; docs/fuzzing.md says more. FUZZ takes any options of the fuzzer.
fuzz: venv
	$(BIN)/python -m vllm_ir.tools.fuzz -n $(N) --jobs $(WORKERS) $(FUZZ)

# Mutated texts of the lit tests, for MINUTES minutes: each has to give a result or a documented error.
fuzz-text: venv
	$(BIN)/python -m vllm_ir.tools.fuzz_text --minutes $(MINUTES)

# Bugs planted in our own passes, each of which the fuzzer has to find.
mutants: venv
	$(BIN)/python -m vllm_ir.tools.fuzz.mutants --jobs $(WORKERS)

lint: venv
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python -m vllm_ir.tools.typecheck

format: venv
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
