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
make lint         clang-format, clang-tidy, shellcheck
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
  CXX=$(CXX)  MARCH=$(MARCH)  OPTIMIZE=$(OPTIMIZE)  DEBUG=$(DEBUG)  V=1 (show commands)
  GRADSYNC_DATA=FOLDER    CIFAR-10's binary files for the demo and the tests
endef

# --- detection ---------------------------------------------------------------------------------

# What config/detect looks at. When any of it has changed, detection runs again; also while something
# is missing (it may have been installed since) and when LibTorch has gone from where it was.
DETECTED_BY := CXX MARCH MPICXX LIBTORCH CUDA_HOME NVCC NCCL_HOME HDF5_DIR BOOST_ROOT FMT_ROOT JSON_ROOT \
  OPENSSL_ROOT ZLIB_ROOT SIMDJSON_ROOT DOCTEST_ROOT PYTHON USE_CUDA TORCH_RELEASE NVIDIA_DRIVER
AMBIENT := PATH HOME XDG_CACHE_HOME PKG_CONFIG_PATH CPATH CONDA_PREFIX
DETECTION_INPUT := $(strip $(foreach v,$(DETECTED_BY) $(AMBIENT),$(v)=$($(v))))

# FILE, TEXT: whether the file holds the text, but for white space: GNU make 4.3 at times keeps the last newline of a file.
holds = $(if $(subst <$(strip $(2))>,,<$(strip $(file <$(1)))>),,yes)

GOALS := $(or $(MAKECMDGOALS),all)

# Lines below read and write files in build/ while make reads this file. So with other goals after it, clean removes
# build/ here, and its recipe does nothing; after other goals its recipe removes build/ when they are done.
DRY_RUN := $(findstring n,$(filter-out --%,$(firstword -$(MAKEFLAGS))))
CLEAN_FIRST := $(and $(filter clean,$(firstword $(GOALS))),$(filter-out clean,$(GOALS)))
$(if $(CLEAN_FIRST),$(if $(MAKE_RESTARTS)$(DRY_RUN),,$(info rm -rf build)$(shell rm -rf build)))
# Without build/config.mk nothing is built: a detection or an installation that fails ends make.
ifneq ($(filter-out help clean format,$(GOALS)),)
include build/config.mk
endif

# What the goals need (a scope of build/config.status each), and which of them install what is missing.
SCOPES := build $(if $(filter deps check demo quantize bench test tests soak,$(GOALS)),demo) \
  $(if $(filter deps test tests soak cluster,$(GOALS)),test) $(if $(filter deps data test tests soak,$(GOALS)),data)
INSTALLS := $(if $(DRY_RUN),,$(filter deps demo test,$(GOALS)))
lacking := $(strip $(foreach scope,$(SCOPES),$(MISSING_$(scope))))

# Make starts over once build/config.mk is rebuilt; the second time it takes it as it is.
ifeq ($(MAKE_RESTARTS),)
stale := $(or $(filter status deps,$(GOALS)),$(lacking),\
  $(if $(wildcard $(LIBTORCH_FOUND)/lib/libtorch_cpu.so),,gone),\
  $(if $(call holds,build/config.input,$(DETECTION_INPUT)),,changed))
build/config.mk: export DETECTION_INPUT := $(DETECTION_INPUT)
$(foreach v,$(DETECTED_BY) DOWNLOAD,$(eval build/config.mk: export $(v) := $($(v))))
build/config.mk: config/detect $(wildcard config/find/*.sh config/common.sh user.mk) $(if $(stale),always)
	@config/detect
	$(if $(INSTALLS),@config/deps $(SCOPES))
endif

# --- flags -------------------------------------------------------------------------------------

WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wconversion
LANGUAGE = -std=c++20 $(OPTIMIZE) $(if $(MARCH),-march=$(MARCH)) $(if $(filter 1,$(DEBUG)),-g) \
  -DGRADSYNC_WITH_CUDA=$(WITH_CUDA) $(CPPFLAGS) $(CXXFLAGS)
# LibTorch's folder goes before the others: it brings the fmt that its own headers need, as headers only
# and in a namespace of its version, so that it does not meet the system's.
# Classes of LibTorch's headers have members of their own without NDEBUG, which its libraries are built with.
TORCH_FLAGS = $(TORCH_CFLAGS) -DNDEBUG -DFMT_HEADER_ONLY -Wno-interference-size $(if $(filter 1,$(WITH_CUDA)),-DUSE_C10D_NCCL)
MPI_FLAGS = $(MPI_CFLAGS) $(CUDA_CFLAGS) $(NCCL_CFLAGS)
COMMON_FLAGS = -Isrc $(HDF5_CFLAGS) $(BOOST_CFLAGS) $(FMT_CFLAGS) $(JSON_CFLAGS) $(SSL_CFLAGS)
TEST_FLAGS = -I. -Itests $(DOCTEST_CFLAGS)

NVCC_FLAGS = -std=c++20 -O3 --expt-relaxed-constexpr -ccbin $(lastword $(CXX)) -Isrc -DGRADSYNC_WITH_CUDA=1 \
  -Xcompiler -Wall,-Wextra,-Wshadow,-Wconversion --Werror cross-execution-space-call,default-stream-launch \
  $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$a,code=sm_$a) \
  $(foreach a,$(lastword $(CUDA_ARCHS)),-gencode arch=compute_$a,code=compute_$a)

PLAIN_LIBS = $(FMT_LIBS) $(HDF5_LIBS) $(BOOST_LIBS) $(SSL_LIBS) -pthread
GPU_LIBS = $(CUDA_LIBS) $(NCCL_LIBS)
FULL_LIBS = $(TORCH_LIBS) $(MPI_LIBS) $(GPU_LIBS) $(PLAIN_LIBS)

# --- sources -----------------------------------------------------------------------------------

# The folder decides what its code may include: of these, nothing; MPI and CUDA; or those and LibTorch.
# No folder includes one of a later class (config/walls).
PLAIN := $(addprefix src/,support timing host device record hang data schedule options algorithms buckets checkpoint collectives \
  check int8 kernels sweep)
MPI := $(addprefix src/,cuda comm exchange transport calibrate)
TORCH := $(addprefix src/,model optim sync step state studies train quantize preflight)
REPORT := analysis $(patsubst %/,%,$(wildcard analysis/*/))
REPORT_TESTS := tests/serial/analysis $(patsubst %/,%,$(wildcard tests/serial/analysis/*/))
PLAIN_TESTS := tests/serial $(filter-out tests/serial/analysis,$(patsubst %/,%,$(wildcard tests/serial/*/)))
MPI_TESTS := tests/mpi $(patsubst %/,%,$(wildcard tests/mpi/*/))
# Sums that are the same to the last digit on every machine and with every kernel: no fused multiply-add.
UNFUSED := src/timing src/record src/buckets src/int8 $(REPORT)
# No iteration waits for these.
COLD := src/check src/options src/schedule src/hang src/sweep $(REPORT)
# What the parsers under the fuzzer need.
FUZZED := $(addprefix src/,support timing host device record data schedule options algorithms buckets checkpoint collectives int8 sweep) \
  $(filter-out analysis,$(REPORT)) tests/fuzz tests/fuzz/libfuzzer
# Under ThreadSanitizer.
RACES := src/algorithms src/support src/timing tests/serial/algorithms
# Each a program, or with flags of its own: compiled alone.
ALONE := $(wildcard src/*/main.cpp analysis/main.cpp analysis/*/main.cpp bench/*.cpp tests/tools/*.cpp tests/soak/*.cpp tests/*/main.cpp) \
  src/support/version.cpp

# The other files of a folder are compiled several at a time, so that their headers are read once: by a file of
# includes below build/unity, named after the first of them. Written when it changes.
AT_ONCE := 12
AT_ONCE_TORCH := 10
define newline


endef
number := \#
includes = $(foreach source,$(1),$(number)include "$(source)"$(newline))
write_unity = $(eval UNITY_FILES += $(1))$(if $(call holds,$(1),$(call includes,$(2))),,\
  $(shell mkdir -p $(dir $(1)))$(file >$(1),$(call includes,$(2))))
# AT-ONCE, FILES: the names without .cpp below build/unity, having written them.
unity = $(if $(2),$(if $(READS_SOURCES),$(call write_unity,build/unity/$(firstword $(2)),$(wordlist 1,$(1),$(2))))\
  $(basename $(firstword $(2))) $(call unity,$(1),$(filter-out $(wordlist 1,$(1),$(2)),$(2))))
unity_of = $(foreach folder,$(2),$(call unity,$(1),$(filter-out $(ALONE),$(sort $(wildcard $(folder)/*.cpp)))))
objects = $(patsubst %,build/unity/%.o,$(1))
alone = $(patsubst %.cpp,build/alone/%.o,$(filter $(addsuffix /%,$(1)),$(ALONE)))
# The files of several folders at a time, for tests: a folder has few.
unity_across = $(call unity,$(1),$(filter-out $(ALONE),$(sort $(wildcard $(addsuffix /*.cpp,$(2))))))
READS_SOURCES := $(filter-out help clean format status deps,$(or $(MAKECMDGOALS),all))

PLAIN_OBJECTS := $(call objects,$(call unity_of,$(AT_ONCE),$(PLAIN))) build/alone/src/support/version.o
MPI_OBJECTS := $(call objects,$(call unity_of,$(AT_ONCE),$(MPI)))
TORCH_OBJECTS := $(call objects,$(call unity_of,$(AT_ONCE_TORCH),$(TORCH)))
REPORT_OBJECTS := $(call objects,$(call unity_of,$(AT_ONCE),$(REPORT)))
SERIAL_OBJECTS := $(call objects,$(call unity_of,$(AT_ONCE),tests/fuzz $(filter $(RACES),$(PLAIN_TESTS))) \
  $(call unity_across,$(AT_ONCE),$(filter-out $(RACES),$(PLAIN_TESTS))) $(call unity_across,$(AT_ONCE),$(REPORT_TESTS))) \
  $(call alone,tests/serial)
MPI_TEST_OBJECTS := $(call objects,$(call unity_across,$(AT_ONCE_TORCH),$(MPI_TESTS))) $(call alone,tests/mpi)
GPU_TEST_OBJECTS := $(call objects,$(call unity_of,$(AT_ONCE_TORCH),tests/gpu)) $(call alone,tests/gpu)
TOOL_OBJECTS := $(call alone,tests/tools bench)
# A LibTorch without CUDA: the kernels' CPU implementations are all there is.
KERNELS := $(if $(filter 1,$(WITH_CUDA)),$(patsubst %.cu,build/alone/%.cu.o,$(wildcard src/kernels/*.cu)))
# Each class can be linked with those before it.
LIBRARIES := build/plain.a build/mpi.a build/torch.a build/report.a

# Where the main.cpp of each program is.
MAINS := dataset:src/data sweep:src/sweep report:analysis calibrate:src/calibrate check:src/preflight quantize:src/quantize train:src/train
PROGRAMS := $(foreach main,$(MAINS),build/bin/gradsync-$(firstword $(subst :, ,$(main))))
# Python, without anything to compile.
AUDIT := build/bin/gradsync-audit
FAKE_LIBRARIES := $(patsubst tests/libraries/%.cpp,build/tests/lib%.so,$(wildcard tests/libraries/*.cpp))
TEST_TOOLS := $(patsubst tests/tools/%.cpp,build/tests/%,$(wildcard tests/tools/*.cpp))
# Reads what a crash may leave of a run, for tests/soak/crash.py.
STATE_READER := build/tests/read_state
# Every parser under libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer, for tests/soak/fuzz.py: compiled
# again by clang.
FUZZ_CXX ?= $(filter ccache,$(CXX)) clang++
FUZZER := build/fuzz/fuzz
FUZZ_OBJECTS := $(patsubst %,build/fuzz/%.o,$(call unity_of,$(AT_ONCE),$(FUZZED))) build/fuzz/alone/src/support/version.o
RACE_OBJECTS := $(patsubst %,build/races/%.o,$(call unity_of,$(AT_ONCE),$(RACES))) $(addprefix build/races/alone/,src/support/version.o tests/serial/main.o)
TESTS := build/tests/serial build/tests/races build/tests/mpi $(if $(KERNELS),build/tests/gpu) $(TEST_TOOLS) $(STATE_READER)
BENCHMARKS := $(patsubst bench/%.cpp,build/bench/%,$(wildcard bench/*.cpp))

# Files below build/unity that an earlier layout of the sources left, and all that may hold objects of them.
STALE_UNITY := $(if $(READS_SOURCES),$(filter-out $(UNITY_FILES),$(shell find build/unity -name '*.cpp' 2>/dev/null)))
STALE_OBJECTS := $(foreach folder,unity races fuzz,$(STALE_UNITY:build/unity/%.cpp=build/$(folder)/%.o))
$(if $(STALE_UNITY),$(shell rm -f $(STALE_UNITY) $(STALE_OBJECTS) $(STALE_OBJECTS:.o=.d) $(LIBRARIES) $(TESTS) build/tests/gpu $(FUZZER)))

USES_TORCH := $(TORCH_OBJECTS) $(MPI_TEST_OBJECTS) $(GPU_TEST_OBJECTS) $(TOOL_OBJECTS) $(call alone,$(TORCH))
USES_MPI := $(MPI_OBJECTS) $(call alone,$(MPI))
TEST_OBJECTS := $(SERIAL_OBJECTS) $(MPI_TEST_OBJECTS) $(GPU_TEST_OBJECTS) $(TOOL_OBJECTS) $(call alone,tests/soak)
OBJECTS := $(sort $(PLAIN_OBJECTS) $(call alone,$(PLAIN)) $(REPORT_OBJECTS) $(call alone,analysis) $(USES_MPI) $(USES_TORCH) $(TEST_OBJECTS))

# --- targets for people ------------------------------------------------------------------------

.PHONY: all help status deps check quantize demo test soak cluster cluster-stop bench tables data lint format install bundle clean always complete tests

help:
	$(info $(HELP))@:

status:
	@config/status

# Installed while build/config.mk was made.
deps:
	@config/status

print-%:
	$(info $($*))@:

all: $(PROGRAMS) $(AUDIT) build/example-runs

check: all
	@tests/smoke

# Printed before anything is built, and after what was installed.
ifneq ($(and $(filter demo,$(GOALS)),$(if $(wildcard build/bin/gradsync-train),,new)),)
$(if $(DRY_RUN)$(stale),,$(info == build: all programs, 3 to 5 minutes on 2 cores; then the demo, about 2 minutes))
endif
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
	@config/bundle build/bundle '$(or $(MARCH),any)' >build/tests/bundle.log 2>&1 || cat build/tests/bundle.log
	@env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u MAKE_TERMOUT -u MAKE_TERMERR tests/run

soak: tests
	@tests/soak/run $(PARTS)

cluster: all
	@tests/slurm/cluster start

bench: all $(BENCHMARKS)
	@bench/run $(PARTS)

data: build/bin/gradsync-dataset
	$(if $(filter no,$(DOWNLOAD)),@echo 'gradsync: DOWNLOAD=no: CIFAR-10 was not downloaded' >&2; exit 69,$< fetch --to data/cifar-10)

bundle:
	+@$(MAKE) --no-print-directory MARCH=$(BUNDLE_MARCH) all $(if $(KERNELS),build/tests/gpu build/tests/mpi build/tests/libcount_waits.so build/bench/gpu_kernels)
	@config/bundle build/bundle $(BUNDLE_MARCH)

# Said before anything is built.
ifneq ($(filter install,$(GOALS)),)
$(if $(filter /%,$(firstword $(PREFIX))),,$(error PREFIX='$(PREFIX)' is not an absolute path; for example: make install PREFIX=/opt/gradsync))
endif
install: all
	@DESTDIR='$(DESTDIR)' config/install '$(PREFIX)' $(PROGRAMS) $(AUDIT)

cluster-stop:
	@tests/slurm/cluster stop

# What make compiles, in the same units: most of clang-tidy's time goes into headers.
units = $(patsubst build/alone/%.o,%.cpp,$(patsubst build/unity/%.o,build/unity/%.cpp,$(1)))
lint:
	@FLAGS='$(filter-out -fvect-cost-model=%,$(LANGUAGE)) $(WARNINGS) $(MPI_FLAGS) $(COMMON_FLAGS) $(TEST_FLAGS)' \
	  TORCH_FLAGS='-include src/pch/torch.h $(TORCH_FLAGS)' TORCH_UNITS='$(call units,$(USES_TORCH))' \
	  UNITS='$(call units,$(filter-out $(USES_TORCH),$(OBJECTS))) $(wildcard tests/libraries/*.cpp tests/fuzz/libfuzzer/*.cpp)' config/lint

format:
	find src analysis tests $(wildcard bench) \( -name '*.cpp' -o -name '*.h' -o -name '*.cu' \) -exec clang-format -i {} +

clean: $(if $(CLEAN_FIRST),,$(filter-out clean,$(GOALS)))
	$(if $(CLEAN_FIRST),@:,rm -rf build)

# --- how things are built ----------------------------------------------------------------------

Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-5s %s\n' $(1) $(2))

# As many jobs as cores and memory allow (a LibTorch file takes up to 2 GB); a -j of the user's wins.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(or $(BUILD_JOBS),1)
endif

# Nothing is compiled while something that the goals need is missing.
ifneq ($(lacking),)
$(OBJECTS): | complete
complete:
	@config/deps --only-say $(SCOPES)
endif

# The flags of the last build; rewritten when they change, so that everything is rebuilt.
FLAGS := $(strip $(CXX) $(LANGUAGE) $(WARNINGS) $(TORCH_FLAGS) $(MPI_FLAGS) $(COMMON_FLAGS) $(LDFLAGS) $(FULL_LIBS))
build/flags: $(if $(call holds,build/flags,$(FLAGS)),,always)
	@mkdir -p build
	$(if $(DRY_RUN),,$(file >$@,$(FLAGS)))@:

build/nvcc-flags: FLAGS := $(strip $(NVCC_FOUND) $(NVCC_FLAGS))
build/nvcc-flags: $(if $(call holds,build/nvcc-flags,$(NVCC_FOUND) $(NVCC_FLAGS)),,always)
	@mkdir -p build
	$(if $(DRY_RUN),,$(file >$@,$(FLAGS)))@:

# GCC takes a precompiled header only under the very flags it was made with, warnings included.
build/gch/pch/torch.h.gch: src/pch/torch.h build/flags
	$(call say,PCH,$<)
	@mkdir -p $(@D)
	$(Q)$(CXX) -x c++-header $(LANGUAGE) $(WARNINGS) $(TORCH_FLAGS) $(MPI_FLAGS) $(COMMON_FLAGS) $< -o $@

EXTRA :=
PLACE :=
$(USES_MPI): private EXTRA = $(MPI_FLAGS)
$(USES_TORCH): private EXTRA = -Ibuild/gch -include pch/torch.h -Winvalid-pch $(TORCH_FLAGS) $(MPI_FLAGS)
$(USES_TORCH): build/gch/pch/torch.h.gch
$(TEST_OBJECTS) $(REPORT_OBJECTS) $(call alone,analysis): private PLACE = $(TEST_FLAGS)
# -O2 takes half as long again to compile, and what these do is hardly faster by it.
$(SERIAL_OBJECTS) $(call objects,$(call unity_of,$(AT_ONCE),$(COLD))): private OPTIMIZE = -O1
$(call objects,$(call unity_of,$(AT_ONCE),$(UNFUSED))): private EXTRA = -ffp-contract=off $(ZLIB_CFLAGS) $(SIMDJSON_CFLAGS)

COMPILE = $(Q)$(CXX) $(LANGUAGE) $(WARNINGS) $(EXTRA) $(COMMON_FLAGS) $(PLACE) -MMD -MP

build/unity/%.o: build/unity/%.cpp build/flags
	$(call say,CXX,$*)
	$(COMPILE) -iquote . -c $< -o $@

build/alone/%.o: %.cpp build/flags
	$(call say,CXX,$<)
	@mkdir -p $(@D)
	$(COMPILE) -c $< -o $@

build/alone/%.cu.o: %.cu build/nvcc-flags
	$(call say,NVCC,$<)
	@mkdir -p $(@D)
	$(Q)$(NVCC_FOUND) $(NVCC_FLAGS) -MMD -MP -MF $(@:.o=.d) -c $< -o $@

-include $(OBJECTS:.o=.d) $(KERNELS:.o=.d)

# Only version.cpp knows the revision, and is compiled again only when it changes.
build/revision: always
	@mkdir -p build
	@new=$$(git describe --always --dirty 2>/dev/null || echo unknown); \
	  [[ -e $@ && $$(<$@) == "$$new" ]] || printf '%s\n' "$$new" >$@
build/alone/src/support/version.o: build/revision
build/alone/src/support/version.o: private EXTRA = -DGRADSYNC_REVISION='"$(strip $(file <build/revision))"'

# Thin archives: from each, the linker takes the objects that a program needs.
build/plain.a: $(PLAIN_OBJECTS)
build/mpi.a: $(MPI_OBJECTS) $(KERNELS)
build/torch.a: $(TORCH_OBJECTS)
build/report.a: $(REPORT_OBJECTS)
$(LIBRARIES):
	@rm -f $@
	$(Q)ar rcsTP $@ $^

# LibTorch 2.11's libtorch.so exports parts of std::filesystem that crash when called (remove_all).
# The standard library has to come before it, both for the linker and in the loader's order.
STDCXX_FIRST := -Wl,--no-as-needed -lstdc++

# --- programs: their classes, and the libraries each may know ----------------------------------

WITH_PLAIN := build/bin/gradsync-dataset build/bin/gradsync-sweep $(STATE_READER)
WITH_REPORT := build/bin/gradsync-report build/tests/serial
WITH_MPI := build/bin/gradsync-calibrate
WITH_TORCH := $(filter-out $(WITH_PLAIN) $(WITH_REPORT) $(WITH_MPI),$(PROGRAMS)) build/tests/mpi build/tests/gpu $(TEST_TOOLS) $(BENCHMARKS)

$(foreach main,$(MAINS),$(eval build/bin/gradsync-$(subst :,: build/alone/,$(main))/main.o))
build/tests/serial: $(SERIAL_OBJECTS)
build/tests/mpi: $(MPI_TEST_OBJECTS)
build/tests/gpu: $(GPU_TEST_OBJECTS)
$(TEST_TOOLS): build/tests/%: build/alone/tests/tools/%.o
$(BENCHMARKS): build/bench/%: build/alone/bench/%.o
$(STATE_READER): build/alone/tests/soak/read_state.o

$(WITH_PLAIN): build/plain.a
$(WITH_REPORT): build/report.a build/plain.a
$(WITH_MPI): build/mpi.a build/plain.a
$(WITH_TORCH): build/torch.a build/mpi.a build/plain.a

# The package stays where it is; config/install copies it into share/gradsync.
$(AUDIT): analysis/audit/gradsync-audit.in src/support/version.cpp build/revision
	$(call say,PY,$@)
	@mkdir -p $(@D)
	$(Q)version=$$(sed -n 's/.*return "\([0-9.]*\)";/\1/p' src/support/version.cpp) && \
	  sed "s/@VERSION@/$$version (revision $$(<build/revision))/" $< >$@ && chmod 755 $@

# Libraries that tests load in place of a driver's.
$(FAKE_LIBRARIES): build/tests/lib%.so: tests/libraries/%.cpp build/flags
	$(call say,CXX,$<)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(LANGUAGE) $(WARNINGS) -shared -fPIC $< -o $@
build/tests/serial: | $(FAKE_LIBRARIES) $(AUDIT) build/tests/corpus
build/tests/corpus: tests/fuzz/corpus.tar.xz
	$(Q)rm -rf $@ && mkdir -p $@ && tar -xf $< -C $@

RACE_COMPILE = $(Q)$(CXX) $(LANGUAGE) $(WARNINGS) $(COMMON_FLAGS) $(TEST_FLAGS) -g -fsanitize=thread -MMD -MP
build/races/%.o: build/unity/%.cpp build/flags
	$(call say,TSAN,$*)
	@mkdir -p $(@D)
	$(RACE_COMPILE) -iquote . -c $< -o $@
build/races/alone/%.o: %.cpp build/flags
	$(call say,TSAN,$<)
	@mkdir -p $(@D)
	$(RACE_COMPILE) -DGRADSYNC_REVISION='"races"' -c $< -o $@
-include $(RACE_OBJECTS:.o=.d)
build/tests/races: $(RACE_OBJECTS)
build/tests/races: private LDFLAGS += -fsanitize=thread

FUZZ_COMPILE = $(Q)$(FUZZ_CXX) -std=c++20 -O1 -gline-tables-only -DGRADSYNC_WITH_CUDA=$(WITH_CUDA) -DGRADSYNC_REVISION='"fuzz"' $(CPPFLAGS) \
  -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined $(COMMON_FLAGS) $(ZLIB_CFLAGS) $(SIMDJSON_CFLAGS) $(TEST_FLAGS) -MMD -MP
build/fuzz/%.o: build/unity/%.cpp build/flags
	$(call say,FUZZ,$*)
	@mkdir -p $(@D)
	$(FUZZ_COMPILE) -iquote . -c $< -o $@
build/fuzz/alone/%.o: %.cpp build/flags
	$(call say,FUZZ,$<)
	@mkdir -p $(@D)
	$(FUZZ_COMPILE) -c $< -o $@
-include $(FUZZ_OBJECTS:.o=.d)
$(FUZZER): $(FUZZ_OBJECTS)
	$(call say,LINK,$@)
	$(Q)$(FUZZ_CXX) -fsanitize=fuzzer,address,undefined $^ $(PLAIN_LIBS) $(ZLIB_LIBS) $(SIMDJSON_LIBS) -ldl -o $@

# Where config/install puts libraries that other users could not read. It is the first entry, so that config/install
# can take the others out.
RUNPATH := -Wl,-rpath,'$$ORIGIN/../lib/gradsync'

LINK_WITH = $(PLAIN_LIBS)
$(WITH_REPORT): private LINK_WITH = $(PLAIN_LIBS) $(ZLIB_LIBS) $(SIMDJSON_LIBS)
$(WITH_MPI): private LINK_WITH = $(MPI_LIBS) $(GPU_LIBS) $(PLAIN_LIBS)
$(WITH_TORCH): private LINK_WITH = $(FULL_LIBS)
$(sort $(PROGRAMS) $(TESTS) build/tests/gpu $(BENCHMARKS)):
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(LDFLAGS) $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(STDCXX_FIRST) $(RUNPATH) -Wl,--as-needed $(LINK_WITH) -ldl -o $@
