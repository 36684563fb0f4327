# Targets a newcomer needs: demo and test. Everything lives in .venv and build; `make clean` removes both.
# A different interpreter: make test PYTHON=python3.12

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
JOBS := 2
CORPUS := build/corpus/bin
CUTE := build/cute/bin

# pip compiles no modules: most of torch's are never imported, and the others are compiled when they are
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile

# Python keeps what it has compiled: the processes that tests start would each compile the same modules again
unexport PYTHONDONTWRITEBYTECODE

INSTALLED := $(VENV)/.installed
TESTABLE := $(VENV)/.testable

.PHONY: demo quick test lint lit pytest conformance judges conformance-llvm conformance-cutlass conformance-tvm grid programs pins proofs orders judge index docs clean

demo: $(INSTALLED)
	$(BIN)/warploom run examples/matmul.mlir --device interp --check

# all three beside each other: the type checker is one process, and takes a third more work as two; pytest ends last
test: $(TESTABLE)
	@$(MAKE) --no-print-directory --jobs lint lit pytest

# what a change most often breaks, in under three minutes on two cores: no type checker, and a part of the tests
QUICK_LIT := $(wildcard test/filecheck/dialect/warp test/filecheck/passes test/filecheck/pipeline)
QUICK := $(addprefix test/unit/test_,$(addsuffix .py,forms row_kernels isa_rows ptx_parser emitter schedule layout \
	passes_allocate passes_types interp_matrix interp_run passes_registry))
quick: $(TESTABLE)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lit -j$(JOBS) $(QUICK_LIT)
	$(BIN)/pytest -n $(JOBS) $(wildcard $(QUICK))
	$(BIN)/python test/pins.py --every 16 --jobs $(JOBS)

lint: $(TESTABLE)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright --level error

lit: $(TESTABLE)
	$(BIN)/lit -j$(JOBS) test/filecheck

# the tests of a file in one process, which makes what they share once
pytest: $(TESTABLE)
	$(BIN)/pytest -n $(JOBS) --dist loadfile

# every candidate spelling on every target, products of every type and form, all combinations of the qualifiers of the
# other instructions, 4,000 programs with other declarations, 52,000 statements near those of all rows on every target,
# and 2,000 changes of PTX in one place; and the tests of test/unit that are marked as sampled or slow, in full. By the
# processor time of samples, two cores take 7 minutes for the candidates, 4 for the qualifiers near the rows, 1 each for
# the programs, the changes and the statements. The rest, most of it the marked tests, was not timed.
conformance: export WARPLOOM_CONFORMANCE := full
conformance: $(TESTABLE)
	$(BIN)/pytest -n $(JOBS) -rP -k verdict test/conformance/test_isa_conformance.py
	$(BIN)/pytest -n $(JOBS) -rs test/conformance --ignore test/conformance/test_isa_conformance.py
	$(BIN)/pytest -n $(JOBS) test/unit -m "sampled or slow"
	$(BIN)/python test/conformance/mutations.py --jobs $(JOBS)
	$(BIN)/python test/conformance/sweep.py --count 1500 --jobs $(JOBS)
	$(BIN)/python test/conformance/sweep.py --count 500 --operands --jobs $(JOBS)

# the assemblers of CUDA 13.0 to 13.4, with which `make conformance` judges the lowest versions of rows; 400 MB
judges: | $(BIN)/pip
	for version in 13.0.88 13.1.115 13.2.86 13.3.73 13.4.92; do \
	  $(BIN)/pip install -q --no-deps --target build/judges/$$version nvidia-cuda-nvcc==$$version || exit 1; done

# LLVM's tests of its PTX backend through llc, and CUTLASS's inline assembly, statement by statement against ptxas.
# Both are fetched from GitHub; SOURCE= names a checkout or git directory that is there already. Ten minutes, and one.
conformance-llvm: $(TESTABLE)
	$(BIN)/python test/conformance/llvm_suite.py $(if $(SOURCE),--source $(SOURCE)) $(if $(LLC),--llc $(LLC)) --jobs $(JOBS)

conformance-cutlass: $(TESTABLE)
	$(BIN)/python test/conformance/cutlass_suite.py $(if $(SOURCE),--source $(SOURCE)) --jobs $(JOBS)

# every form of TVM's public table: whether the rows have it; its layouts of tensor memory: whether ours are the same
conformance-tvm: $(TESTABLE)
	$(BIN)/python test/conformance/tvm_table.py $(if $(SOURCE),--source $(SOURCE))
	$(BIN)/python test/conformance/tvm_layouts.py $(if $(SOURCE),--source $(SOURCE))

# products and attentions of every type and form at sizes up to 300, on the interpreter against numpy: about an hour
grid: $(TESTABLE)
	$(BIN)/python test/grid.py
	$(BIN)/python test/attention_grid.py --count 300
	$(BIN)/python test/attention_grid.py --count 50 --seed 1 --checks all

# 2,000 drawn programs of elementwise operations, rows and products, with roundings in every place, on the interpreter
# against an evaluator of their own: fifteen minutes; SEED= draws others
programs: $(TESTABLE)
	$(BIN)/python test/linalg_programs.py --jobs $(JOBS) $(if $(SEED),--seed $(SEED))

# all kernels whose PTX and results are pinned, of which the tests take a sample; test/pins.py --rewrite pins them anew
pins: $(TESTABLE)
	$(BIN)/python test/pins.py --jobs $(JOBS)
	$(BIN)/python test/pins.py --words --jobs $(JOBS)

# every pinned kernel computes its function for all inputs, and mutants of some are told from them: an hour
proofs: $(TESTABLE)
	$(BIN)/python test/proofs.py --jobs $(JOBS)
	$(BIN)/python test/prove_mutants.py --count 250 --jobs $(JOBS)

# the pipelines of pinned kernels decide the same in all orders of their warps: twenty minutes
orders: $(TESTABLE)
	$(BIN)/python test/orders.py --jobs $(JOBS)
	$(BIN)/python test/orders.py --pairs --jobs $(JOBS)

# good and bad candidates: no good one is refused, no bad one passes: five minutes
judge: $(TESTABLE)
	$(BIN)/python test/judge/run.py

# kernels of CUDA, Triton and CuTe, compiled for six targets, checked, and run on the interpreter against numpy: ten minutes
corpus: $(TESTABLE) build/corpus/.installed build/cute/.installed
	$(CORPUS)/python test/corpus/cuda_ptx.py --nvcc "$$($(CORPUS)/python test/corpus/compiler.py)"
	$(CORPUS)/python test/corpus/triton_ptx.py
	$(CUTE)/python test/corpus/cute_ptx.py
	$(BIN)/python test/corpus/check.py
	$(BIN)/python test/corpus/run.py

# compilers in an environment of their own: what they take is no dependency of the tests
build/cute/.installed: test/corpus/requirements-cute.txt | $(BIN)/pip
	$(PYTHON) -m venv $(@D)
	$(CUTE)/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

build/corpus/.installed: test/corpus/requirements.txt | $(BIN)/pip
	$(PYTHON) -m venv $(@D)
	$(CORPUS)/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

$(BIN)/pip:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "$(PYTHON) is older than Python 3.11; pass PYTHON=")'
	$(PYTHON) -m venv $(VENV)

$(INSTALLED): pyproject.toml | $(BIN)/pip
	$(INSTALL) -e .
	@touch $@

$(TESTABLE): pyproject.toml | $(BIN)/pip
	$(INSTALL) -e '.[test]'
	@touch $(INSTALLED) $@

# where passes, lowerings, meanings and public names are, by which each is imported on first use
index: $(INSTALLED)
	$(BIN)/python test/index.py

# the pages that follow from the instruction rows; a test says when they must be written again
docs: $(INSTALLED)
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/draw.py
	$(BIN)/python docs/walk.py
	$(BIN)/python docs/attention_walk.py
	$(BIN)/python docs/reference.py
	$(BIN)/python docs/limits.py
	$(BIN)/python docs/shares.py
	$(BIN)/python docs/rooms.py

clean:
	rm -rf $(VENV) build dist src/warploom.egg-info
