# gradsync: `make help` lists the targets, `make status` what the build found.
#
# Detection runs once, into build/config.mk (config/detect); every later make only includes it.
# user.mk (untracked, see user.mk.example) holds local settings; the command line wins over it.

SHELL := /bin/bash
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules

-include user.mk

# --- settings ----------------------------------------------------------------------------------

MARCH ?= native
# GCC 12 leaves the loops of the optimizer and of averaging scalar at plain -O2; vectorized they take half the
# time (bench/optimizer). -O3 does it too, and makes GCC warn of what is not there.
OPTIMIZE ?= -O2 -ftree-vectorize -fvect-cost-model=dynamic
DEBUG ?= 0
# GPU architectures with machine code of their own in the kernels; newer ones compile the last's PTX.
CUDA_ARCHS ?= 80 90
PREFIX ?= /usr/local
# For which CPUs `make bundle` compiles: every x86 server since 2015.
BUNDLE_MARCH ?= x86-64-v3

define HELP
make              build the programs into build/bin
make status       what the build uses: found where, which version, or the line that fixes it
make deps         install what is missing: packages as root on Debian or Ubuntu, LibTorch and headers for anyone;
                  make demo and make test do it first, every other target only says what is missing;
                  SCOPES=build: for the programs alone, without the demo and the tests
make check        a smoke test, less than a minute: 2 ranks, two modes, the report; PASS or FAIL
make demo         train one network in every mode on 1, 2 and 4 ranks, print the comparison
make quantize     train LeNet on CIFAR-10, quantize it to int8 step by step, print tables, draw pictures
make test         all tests; `make tests` builds them, `tests/run serial` runs one tier
make soak         the soak campaign, hours: faults, crashes, sanitizers, fuzzing, mutation; PARTS="crash fuzz" runs these
make cluster      a real Slurm with three nodes on this machine, to try slurm/ on (as root)
make cluster-stop end it; it leaves nothing
make bench        benchmarks; PARTS="all_reduce step" runs these alone (bench/run lists them)
make tables       generate every table and plot of results/example, and compare each byte with the committed digests
make data         fetch CIFAR-10 into data/cifar-10
make lint         clang-format, clang-tidy, shellcheck, walls; SINCE=recent: of what has changed lately
make format       let clang-format rewrite the sources
make bundle       build/bundle.tar.xz: programs, MPI and libraries for a machine with nothing but PyTorch
make install      programs, their libraries, manual pages, templates and a module file into PREFIX ($(PREFIX)), below DESTDIR
make clean        remove build/
make print-VAR    the value of a make variable

Settings, on the command line, in the environment or in user.mk:
  LIBTORCH CUDA_HOME NVCC NCCL_HOME MPICXX HDF5_DIR BOOST_ROOT FMT_ROOT JSON_ROOT OPENSSL_ROOT
  ZLIB_ROOT SIMDJSON_ROOT DOCTEST_ROOT PYTHON     where things are; user.mk.example says more
  USE_CUDA=0  build for CPUs only         NVIDIA_DRIVER=VERSION  of the compute nodes' GPUs
  TORCH_RELEASE=2.10.0  LibTorch from PyPI that make deps installs    DOWNLOAD=no  nothing is downloaded
  CUDA_ARCHS="$(CUDA_ARCHS)"  GPU architectures that kernels are compiled for
  CXX=$(CXX)  MARCH=$(MARCH)  OPTIMIZE=$(OPTIMIZE)  DEBUG=$(DEBUG)
  V=1 (show commands)  UNITY=no (compile each source alone)
  GRADSYNC_DATA=FOLDER    CIFAR-10's binary files for the demo and the tests
endef

include config/build.mk

# --- targets ------------------------------------------------------------------------------------

.PHONY: all help status deps check quantize demo test soak cluster cluster-stop bench tables data lint format install bundle clean always complete tests

help:
	$(info $(HELP))@:

# What deps installs is installed while build/config.mk is made.
status deps:
	@config/status

print-%:
	$(info $($*))@:

all: $(PROGRAMS) build/example-runs

check: all
	@tests/smoke

demo: all
	@config/demo

quantize: all
	@config/quantize

# A run that is newer than the packed one of its name is kept.
build/example-runs: results/example/runs.tar.xz
	$(Q)tar -xf $< --keep-newer-files --warning=no-ignore-newer -C $(<D)
	$(Q)mkdir -p $(@D) && touch $@

tables: build/bin/gradsync-report build/example-runs
	@config/tables

tests: all $(TESTS) $(BENCHMARKS)
# Of the programs that were just tested: no flags change, so nothing is compiled for it.
test: tests
	@config/bundle build/bundle '$(or $(MARCH),any)' >build/tests/bundle.log 2>&1 || cat build/tests/bundle.log
	@env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u MAKE_TERMOUT -u MAKE_TERMERR tests/run

soak: tests
	@tests/soak/run $(PARTS)

cluster: all
	@tests/slurm/cluster start
cluster-stop:
	@tests/slurm/cluster stop

bench: all $(BENCHMARKS)
	@bench/run $(PARTS)

data: build/bin/gradsync-dataset
	$(if $(filter no,$(DOWNLOAD)),@echo 'gradsync: DOWNLOAD=no: CIFAR-10 was not downloaded' >&2; exit 69,$< fetch --to data/cifar-10)

bundle:
	+@$(MAKE) --no-print-directory MARCH=$(BUNDLE_MARCH) all $(if $(KERNELS),build/tests/gpu build/tests/mpi build/tests/libcount_waits.so build/bench/gpu_kernels)
	@config/bundle build/bundle $(BUNDLE_MARCH)

install: all
	@DESTDIR='$(DESTDIR)' config/install '$(PREFIX)' $(PROGRAMS)

lint: build/gch/$(PRECOMPILED).gch
	@$(LINT_INPUT) config/lint

format:
	find src analysis tests $(wildcard bench) \( -name '*.cpp' -o -name '*.h' -o -name '*.cu' \) -exec clang-format -i {} +

clean: $(if $(CLEAN_FIRST),,$(filter-out clean,$(GOALS)))
	$(if $(CLEAN_FIRST),@:,rm -rf build)
