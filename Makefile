# SPDX-License-Identifier: BSD-3-Clause
# gradsync: `make help` lists the targets, `make status` what the build found. What is set by default, found and compiled is in
# config/build.mk.

SHELL := /bin/bash
unexport CDPATH
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules

# `make -f SOURCE/Makefile` in another folder builds there.
SOURCE := $(shell dirname "$$(realpath '$(lastword $(MAKEFILE_LIST))')")
$(if $(subst |$(CURDIR)|,,|$(SOURCE)|),$(shell '$(SOURCE)/config/link' >&2))

define HELP
make              build the programs into build/bin
make status       what the build uses: found where, which version, or the line that fixes it
make deps         install what is missing: packages as root on Debian or Ubuntu, LibTorch and headers for anyone; make demo and
                  make test do it first, all others only say what is missing; SCOPES=build: for the programs alone
make check        a smoke test, less than a minute: 2 ranks, two modes, the report; PASS or FAIL
make demo         train one network in six synchronization modes on 1, 2 and 4 ranks, print the comparison
make quantize     train LeNet on CIFAR-10, quantize it to int8 step by step, print tables, draw pictures
make test         all tests; `make tests` builds them, `tests/run serial` runs one tier
make soak         the soak campaign, hours: faults, crashes, sanitizers, fuzzing, mutation; PARTS="crash fuzz" runs these
make cluster      a real Slurm with three nodes on this machine, to try slurm/ on (as root)
make cluster-stop end it; it leaves nothing
make bench        benchmarks; PARTS="all_reduce step" runs these alone (bench/run lists them)
make tables       generate every table and plot of results/example, and compare each byte with the committed digests
make data         fetch CIFAR-10 into data/cifar-10
make lint         clang-format, clang-tidy, shellcheck, walls, words; SINCE=recent: of what has changed lately
make format       let clang-format rewrite the sources
make bundle       build/bundle.tar.xz: programs, MPI and libraries for a machine with nothing but PyTorch
make install      programs, libraries, manual pages, templates, module file into PREFIX ($(PREFIX)), DESTDIR; bindir libdir mandir docdir
make installcheck a smoke test of what was installed; make uninstall removes it
make dist         build/gradsync-VERSION.tar.xz of the last commit; it builds without git
make clean        remove build/; make distclean also runs and pages that were unpacked and made beside sources
make print-VAR    the value of a make variable

Settings, on the command line, in the environment or in user.mk:
  LIBTORCH CUDA_HOME NVCC NCCL_HOME MPICXX HDF5_DIR BOOST_ROOT FMT_ROOT JSON_ROOT OPENSSL_ROOT
  ZLIB_ROOT SIMDJSON_ROOT DOCTEST_ROOT PYTHON     where things are; user.mk.example says more
  USE_CUDA=0  build for CPUs only         NVIDIA_DRIVER=VERSION  of the compute nodes' GPUs
  TORCH_RELEASE=2.10.0  LibTorch from PyPI that make deps installs    DOWNLOAD=no  nothing is downloaded
  LOCKS=no    versions that PyPI has today, in place of those of config/locks with their hashes
  CUDA_ARCHS="$(CUDA_ARCHS)"  GPU architectures that kernels are compiled for
  CXX=$(CXX)  MARCH=$(MARCH)  OPTIMIZE=$(OPTIMIZE)  DEBUG=$(DEBUG)
  V=1 (show commands)  UNITY=no (compile each source alone)
  GRADSYNC_DATA=FOLDER    CIFAR-10's binary files for the demo and the tests
endef

include config/build.mk

# --- targets ------------------------------------------------------------------------------------

.PHONY: all help status deps check quantize demo test soak cluster cluster-stop bench tables data lint format install installcheck \
  uninstall bundle dist clean distclean always complete tests

help:
	$(info $(HELP))@:

# What deps installs is installed while build/config.mk is made.
status deps:
	@config/status

print-%:
	$(info $($*))@:

all: $(PROGRAMS) $(AUDIT) build/example-runs

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

tables: build/bin/gradsync-report $(AUDIT) build/example-runs
	@config/tables

tests: all $(TESTS) $(BENCHMARKS)
# Of the programs that were just tested: no flags change, so nothing is compiled for it.
test: tests
	@$(NICE) config/bundle build/bundle '$(or $(MARCH),any)' >build/tests/bundle.log 2>&1 & bundle=$$!; \
	  trap 'kill $$bundle 2>/dev/null' INT TERM; \
	  env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u MAKE_TERMOUT -u MAKE_TERMERR tests/run; code=$$?; \
	  wait $$bundle || cat build/tests/bundle.log; exit $$code

soak: tests
	@tests/soak/run $(PARTS)

cluster: all
	@tests/slurm/cluster start
cluster-stop:
	@tests/slurm/cluster stop

bench: all $(BENCHMARKS)
	@bench/run $(PARTS)

data:
	$(if $(filter no,$(DOWNLOAD)),@echo 'gradsync: DOWNLOAD=no: CIFAR-10 was not downloaded' >&2; exit 69,@config/data data/cifar-10)

bundle:
	+@$(MAKE) --no-print-directory MARCH=$(BUNDLE_MARCH) all $(if $(KERNELS),build/tests/gpu build/tests/mpi build/tests/libcount_waits.so build/bench/gpu_kernels)
	@config/bundle build/bundle $(BUNDLE_MARCH)

install: all
	@$(INSTALL) '$(prefix)' $(PROGRAMS) $(AUDIT)
installcheck:
	@$(INSTALL) --check '$(prefix)'
uninstall:
	@$(INSTALL) --remove '$(prefix)'

dist: ; $(make_dist)

lint: build/gch/$(PRECOMPILED).gch $(EMBEDDED)
	@$(LINT_INPUT) config/lint

format:
	find src analysis tests $(wildcard bench) \( -name '*.cpp' -o -name '*.h' -o -name '*.cu' \) -exec clang-format -i {} +

distclean: clean
	rm -rf results/example/*/*.h5 $(shell find analysis bench tests -name __pycache__ 2>/dev/null)

clean: $(if $(CLEAN_FIRST),,$(filter-out clean,$(GOALS)))
	$(if $(CLEAN_FIRST),@:,rm -rf build)
