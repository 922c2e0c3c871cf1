# `make quickstart` and `make test` need Python 3.11 to 3.13 with venv, and PyPI; nothing else.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN = $(VENV)/bin
# The tested versions are for 3.11; other Pythons resolve from the ranges in pyproject.toml.
CONSTRAINTS = $(shell $(PYTHON) -c 'import sys; print("-c constraints.txt" if sys.version_info[:2] == (3, 11) else "")')

# CPUs: large arrays in large pages, a seventh less time for a training step. glibc reads this when a program starts.
export GLIBC_TUNABLES ?= glibc.malloc.hugetlb=1

.PHONY: quickstart evidence-smoke test test-page test-parity lint bench chaos slurm clean

quickstart: $(VENV)/quickstart.done
	$(BIN)/python -m vmsst_jax.train --gin_file=quickstart.gin

# A corner of the experiments in gin/experiments/, resumed where it was stopped. DATA_DIR=DIR, a folder with tatoeba, adds
# that to what is scored.
evidence-smoke: $(VENV)/quickstart.done
	JAX_COMPILATION_CACHE_DIR=.cache/jax $(BIN)/python -m vmsst_jax.experiment --gin_file=experiments/smoke.gin \
	  $(if $(DATA_DIR),--gin.DATA_DIR='"$(DATA_DIR)"')

test: $(VENV)/test.done
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder -m "not parity and not browser"

# The live comparison with PyTorch and transformers, which `make test` replaces by stored arrays.
test-parity: $(VENV)/parity.done
	$(BIN)/python -m pytest -m parity

# The report in a real browser; needs Chromium (Debian: apt install chromium).
test-page: $(VENV)/test.done
	$(BIN)/python -m pytest -m browser tests/benchmarks

# The speed claims of docs/RESULTS.md, side by side with other libraries; on an otherwise idle machine. Scripts that need
# a model or text of yours (embedding_speed.py, scann_speed.py, mining_speed.py with --help) are run by hand.
bench: $(VENV)/bench.done
	for name in output_layer vmsst_step t5_step contrastive_chunks token_cache; do \
	  echo "== $$name"; $(BIN)/python tests/perf/$$name.py || exit 1; done

# Several processes on this machine: the same losses as one, and faults at random moments; a pipeline killed in every stage,
# and the one of the paper's size by small models.
# 30 minutes or more; the disk's faults need root, for a small tmpfs.
chaos: $(VENV)/test.done
	$(BIN)/python tests/chaos/equality.py
	$(BIN)/python tests/chaos/chaos.py
	$(BIN)/python tests/chaos/pipeline.py
	$(BIN)/python tests/chaos/full_size.py

# Slurm with two node daemons on this machine; needs root and Debian's slurm-wlm and munge.
slurm: $(VENV)/test.done
	PYTHON=$(CURDIR)/$(BIN)/python tests/chaos/slurm.sh

lint: $(VENV)/test.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/shellcheck launch/*.sh tests/chaos/*.sh .ci/run

$(VENV)/%.done: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check $(CONSTRAINTS) -e '.[$*]'
	touch $@

# Only a CPU build is wanted; the named version keeps pip from choosing one with CUDA where a CPU wheel is at hand.
$(VENV)/parity.done: $(VENV)/test.done
	$(BIN)/pip install --quiet --disable-pip-version-check 'torch==2.13.0'
	$(BIN)/pip install --quiet --disable-pip-version-check $(CONSTRAINTS) -e '.[parity]'
	touch $@

$(VENV)/bench.done: $(VENV)/parity.done
	$(BIN)/pip install --quiet --disable-pip-version-check $(CONSTRAINTS) -e '.[bench]'
	touch $@

clean:
	rm -rf $(VENV) .cache build dist *.egg-info
