# The commands of the README. `make` alone lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PY := .venv/bin/python
RL := .venv/bin/robot-rl
# one thread per process: on a small machine BLAS and torch threads fight the control loop
export OMP_NUM_THREADS ?= 1
export MUJOCO_GL ?= egl
# containers often set it; then each of a graph's processes, and each reader of the tests, compiles everything anew
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup interfaces demo test check bench faults endurance screenshots fuzz soak compat-lerobot constraints clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

setup: ## .venv with pinned packages, ROS 2 and OpenGL (fast when up to date)
	@.ci/setup

interfaces: ## build the message types of robot vendors that no sourced ROS 2 has (make setup does it too)
	@$(PY) -m robot_rl.ros.vendor_build

demo: setup ## teach a simulated arm to insert a peg, through ROS 2 and ZeroMQ, and show the report
	@$(RL) demo

test: setup ## all tests that fit a laptop
	@.ci/browser
	@failed=0; \
	$(PY) -m pytest -q -m "not slow and not alone" -n 3 --dist loadfile \
		--no-loadscope-reorder || failed=1; \
	$(PY) -m pytest -q -m "not slow and alone" -n 2 || failed=1; \
	exit $$failed

check: setup ## lint, format, types, and every experiment's configuration
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/pyright
	@$(RL) check

bench: setup ## speed of environment, learner, link, gate and control loop
	@$(RL) bench env && $(RL) bench learner && $(RL) bench link && $(RL) bench gate && $(RL) bench loop

faults: setup ## break every part of the system and measure what it does then (two minutes)
	@$(RL) faults

endurance: setup ## an hour with a kill a minute, and 45 minutes with the page open: rows, memory, ticks
	@.ci/browser
	@$(RL) bench endurance --json runs/endurance/endurance.json

screenshots: setup ## the pages of console and studio in docs/img, taken anew from runs that learn (ten minutes)
	@.ci/browser
	@PYTHONPATH=.:sim:hardware $(PY) -m tests.support.screenshots

fuzz: setup ## 10 million inputs for every decoder and parser (FUZZ=number of others, FUZZ_PY=a Python that has atheris)
	@PYTHONPATH=.:sim:hardware $(or $(FUZZ_PY),$(PY)) -m tests.fuzz.run $(if $(FUZZ),--inputs $(FUZZ))

soak: setup ## the long runs, for hours; interrupted, it goes on where it was (SOAK="ros run": only these folders of tests)
	@.ci/soak $(SOAK)

compat-lerobot: setup ## the real lerobot reads our export, and is a base; LEROBOT_PY=python of an environment with it
	@test -n "$(LEROBOT_PY)" || { echo "usage: make compat-lerobot LEROBOT_PY=/path/to/env/bin/python"; exit 2; }
	@rm -rf build/compat && mkdir -p build/compat
	@$(RL) record experiment=peg_insert_easy_pixels runtime=lockstep --demos 40 run_dir=build/compat/run
	@$(RL) export build/compat/run --to lerobot --out build/compat/lerobot
	@$(LEROBOT_PY) tests/compat/lerobot_reads_export.py build/compat/lerobot
	@PYTHONPATH=. $(LEROBOT_PY) tests/compat/lerobot_base.py

constraints: setup ## pin what is installed now into constraints.txt (then run make test)
	@$(PY) .ci/pin > constraints.txt.new && mv constraints.txt.new constraints.txt

clean: ## remove caches, builds and .venv; runs/ is kept
	rm -rf .venv build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
