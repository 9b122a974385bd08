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
# GCC 12 leaves the loops of the optimiser and of averaging scalar at plain -O2; vectorised they take half the
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
make deps         install what is missing (as root on Debian or Ubuntu; else says the line)
make demo         train one network in every mode on 1, 2 and 4 ranks, print the comparison
make quantize     train LeNet on CIFAR-10, quantise it to int8 step by step, print tables, draw pictures
make test         all tests; `make tests` builds them, `tests/run serial` runs one tier
make soak         the soak campaign, hours: faults, crashes, sanitizers, fuzzing, mutation; PARTS="crash fuzz" runs these
make cluster      a real Slurm with three nodes on this machine, to try slurm/ on (as root)
make cluster-stop end it; it leaves nothing
make bench        benchmarks; PARTS="all_reduce step" runs these alone (bench/run lists them)
make tables       every table and plot of results/example again, into results/example/tables
make data         fetch CIFAR-10 into data/cifar-10
make lint         clang-format, clang-tidy, shellcheck (LINT_TORCH=1: LibTorch's users as well)
make format       let clang-format rewrite the sources
make bundle       build/bundle: programs, MPI and libraries for a machine with nothing but PyTorch
make install      into PREFIX ($(PREFIX)); DESTDIR is honoured
make clean        remove build/
make print-VAR    the value of a make variable

Settings, on the command line, in the environment or in user.mk:
  LIBTORCH CUDA_HOME NVCC NCCL_HOME MPICXX HDF5_DIR BOOST_ROOT FMT_ROOT JSON_ROOT OPENSSL_ROOT
  ZLIB_ROOT DOCTEST_ROOT PYTHON     where things are; user.mk.example says more
  CUDA_ARCHS="$(CUDA_ARCHS)"  GPU architectures that kernels are compiled for
  CXX=$(CXX)  MARCH=$(MARCH)  OPTIMIZE=$(OPTIMIZE)  DEBUG=$(DEBUG)  V=1 (show commands)
  GRADSYNC_DATA=FOLDER    CIFAR-10's binary files for the demo and the tests
endef

# --- detection ---------------------------------------------------------------------------------

# What config/detect looks at. When any of it has changed, detection runs again; also while something
# is missing (it may have been installed since) and when LibTorch has gone from where it was.
DETECTED_BY := CXX MARCH MPICXX LIBTORCH CUDA_HOME NVCC NCCL_HOME HDF5_DIR BOOST_ROOT FMT_ROOT JSON_ROOT \
  OPENSSL_ROOT ZLIB_ROOT DOCTEST_ROOT PYTHON
AMBIENT := PATH HOME XDG_CACHE_HOME PKG_CONFIG_PATH CPATH
DETECTION_INPUT := $(strip $(foreach v,$(DETECTED_BY) $(AMBIENT),$(v)=$($(v))))

GOALS := $(or $(MAKECMDGOALS),all)
ifneq ($(filter-out help clean format,$(GOALS)),)
-include build/config.mk
endif

# Make starts over once build/config.mk is rebuilt; the second time it takes it as it is.
ifeq ($(MAKE_RESTARTS),)
stale := $(or $(filter status deps,$(GOALS)),$(MISSING_build),\
  $(if $(wildcard $(LIBTORCH_FOUND)/lib/libtorch_cpu.so),,gone),\
  $(if $(subst $(DETECTION_INPUT),,$(file <build/config.input)),changed),\
  $(if $(wildcard build/config.input),,new))
build/config.mk: export DETECTION_INPUT := $(DETECTION_INPUT)
$(foreach v,$(DETECTED_BY),$(eval build/config.mk: export $(v) := $($(v))))
build/config.mk: config/detect $(wildcard config/find/*.sh config/common.sh user.mk) $(if $(stale),always)
	@config/detect
endif

# --- flags -------------------------------------------------------------------------------------

WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wconversion
LANGUAGE = -std=c++20 $(OPTIMIZE) $(if $(MARCH),-march=$(MARCH)) $(if $(filter 1,$(DEBUG)),-g) \
  -DGRADSYNC_WITH_CUDA=$(WITH_CUDA) $(CPPFLAGS) $(CXXFLAGS)
# LibTorch's folder goes before the others: it brings the fmt that its own headers need, as headers only
# and in a namespace of its version, so that it does not meet the system's.
TORCH_FLAGS = $(TORCH_CFLAGS) -DFMT_HEADER_ONLY -Wno-interference-size $(if $(filter 1,$(WITH_CUDA)),-DUSE_C10D_NCCL)
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

# The objects of folders ("src/data") and of single files ("src/train/options").
objects = $(patsubst %.cpp,build/obj/%.o,$(wildcard $(addsuffix /*.cpp,$(1)) $(addsuffix .cpp,$(1))))
# A LibTorch without CUDA: the twins of the kernels are all there is.
KERNELS := $(if $(filter 1,$(WITH_CUDA)),$(patsubst %.cu,build/obj/%.cu.o,$(wildcard src/kernels/*.cu)))

# The trainer's options are checked by gradsync-sweep too, and gradsync-report knows their roles; neither knows LibTorch.
TRAIN_OPTIONS := src/train/options src/train/options_optimiser src/train/options_learning_rate src/train/options_stop src/train/options_synchronisation \
  src/train/options_replicas \
  src/train/graph_obstacle src/train/fault src/calibrate/sizes
TRAIN_PLAIN := src/train/epoch_plan
CALIBRATE_RANKS := src/calibrate/calibrator src/calibrate/run
CHECK_RANKS := src/check/run src/check/mpi_job src/check/suite_libraries
CHECK_TORCH := src/check/libtorch
# The arithmetic of gradsync-quantize knows neither LibTorch nor MPI.
QUANTIZE_PLAIN := $(addprefix src/quantize/,scale weights distribution calibrator plan float_model int8_model int8_file \
  convolution convolution_vnni int8_network images workers options tensor_rows summary)
QUANTIZE_RANKS := src/quantize/ranks
QUANTIZE_PARTS := src/support src/timing src/device src/record src/checkpoint src/data src/comm src/model src/kernels src/quantize
# What devices need of CUDA is in files of their own; the rest of the folder knows none.
DEVICE_CUDA := $(patsubst %.cpp,%,$(wildcard src/device/cuda_*.cpp))
DEVICE_PLAIN := $(filter-out $(DEVICE_CUDA),$(patsubst %.cpp,%,$(wildcard src/device/*.cpp)))
# How gradients are cut, without LibTorch.
BUCKETS := src/sync/buckets src/sync/bucket_advice src/sync/message_order
# All-reduces of our own, without MPI.
ALL_REDUCES := $(addprefix src/comm/,shared_all_reduce shared_counter slice_sum ring_all_reduce ring_connection interfaces)
PLAIN_PARTS := src/support src/timing src/record src/checkpoint src/schedule src/data src/sweep \
  $(addprefix src/comm/,launcher transport_choice ledger statement watched_phases hang_report deadline_guard recorded_environment) $(ALL_REDUCES) $(DEVICE_PLAIN) $(TRAIN_OPTIONS) $(TRAIN_PLAIN) $(BUCKETS) $(QUANTIZE_PLAIN)
FULL_PARTS := src/support src/timing src/device src/record src/checkpoint src/data src/comm src/calibrate src/model src/schedule src/optim src/sync src/train src/kernels
CALIBRATE_PARTS := src/support src/timing src/device src/record src/comm src/calibrate src/kernels
CHECK_PARTS := src/support src/timing src/device src/record src/data src/comm src/check src/kernels
REPORT_MAIN := analysis/main
REPORT := $(call objects,analysis analysis/*)
PROGRAMS := $(patsubst src/programs/%.cpp,build/bin/gradsync-%,$(wildcard src/programs/*.cpp)) \
  $(if $(wildcard $(REPORT_MAIN).cpp),build/bin/gradsync-report)
FAKE_LIBRARIES := $(patsubst tests/libraries/%.cpp,build/tests/lib%.so,$(wildcard tests/libraries/*.cpp))
TEST_TOOLS := $(patsubst tests/tools/%.cpp,build/tests/%,$(wildcard tests/tools/*.cpp))
# All-reduces of our own under ThreadSanitizer: what needs neither LibTorch nor MPI of them.
RACES := $(addsuffix .cpp,$(ALL_REDUCES) $(addprefix src/support/,error file out_of_memory parse) \
  tests/serial/main tests/serial/shared_all_reduce_test tests/serial/ring_all_reduce_test)
# Reads what a crash may leave of a run, for tests/soak/crash.py.
STATE_READER := build/tests/read_state
# Every parser under libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer, for tests/soak/fuzz.py: what
# the targets of tests/fuzz need, compiled again by clang.
FUZZ_CXX ?= $(filter ccache,$(CXX)) clang++
FUZZED := $(patsubst %.cpp,build/fuzz/%.o,$(wildcard tests/fuzz/*.cpp tests/fuzz/libfuzzer/*.cpp $(addsuffix /*.cpp,\
  src/support src/timing src/record src/checkpoint src/schedule src/data src/sweep) $(addsuffix .cpp,$(TRAIN_OPTIONS) \
  $(addprefix src/quantize/,options plan float_model weights scale calibrator distribution) \
  $(addprefix src/calibrate/,options operation operation_data allreduce broadcast gather reduce scatter) src/device/event_ring \
  $(addprefix src/comm/,transport_choice launcher ring_connection interfaces) \
  $(addprefix analysis/published/,csv rows quantities units))))
FUZZER := build/fuzz/fuzz
TESTS := build/tests/serial build/tests/races build/tests/mpi $(if $(KERNELS),build/tests/gpu) $(TEST_TOOLS) $(STATE_READER)
# Writes large run files for tests of the report; no benchmark by itself.
RUN_MAKER := build/bench/large_runs
BENCHMARKS := $(filter-out $(RUN_MAKER),$(patsubst bench/%.cpp,build/bench/%,$(wildcard bench/*.cpp)))

# Which objects see what. The rest sees neither LibTorch nor MPI.
TORCH_OBJECTS := $(filter-out $(call objects,$(TRAIN_OPTIONS) $(TRAIN_PLAIN) $(BUCKETS) $(QUANTIZE_PLAIN) $(QUANTIZE_RANKS) bench/large_runs),\
  $(call objects,src/model src/optim src/sync src/train src/quantize $(CHECK_TORCH) src/programs/train tests/mpi tests/gpu tests/tools bench))
MPI_OBJECTS := $(call objects,src/comm src/kernels $(DEVICE_CUDA) $(CALIBRATE_RANKS) $(CHECK_RANKS) $(QUANTIZE_RANKS) src/programs/calibrate src/programs/check src/programs/quantize) \
  $(TORCH_OBJECTS)
TEST_OBJECTS := $(call objects,tests/serial tests/mpi tests/gpu tests/tools tests/soak tests/fuzz bench) $(REPORT)
OBJECTS := $(sort $(call objects,$(PLAIN_PARTS) $(FULL_PARTS) src/quantize src/check src/programs) $(TEST_OBJECTS))

# --- targets for people ------------------------------------------------------------------------

.PHONY: all help status deps quantize demo test soak cluster cluster-stop bench tables data lint format install bundle clean always complete tests

help:
	$(info $(HELP))@:

status:
	@config/status

INSTALL_MISSING := MAKE='$(MAKE)' PYTHON='$(PYTHON)' config/deps
deps:
	+@$(INSTALL_MISSING) build demo test data

print-%:
	$(info $($*))@:

# What a goal needs is installed first, or said, before anything is built.
SCOPES := build $(if $(filter demo bench test tests soak,$(GOALS)),demo) \
  $(if $(filter test tests soak cluster,$(GOALS)),test) $(if $(filter data test tests soak,$(GOALS)),data)
lacking := $(strip $(if $(DEPS_ARE_DONE),,$(foreach scope,$(SCOPES),$(MISSING_$(scope)))))
ifneq ($(lacking),)

all demo quantize tests test soak cluster bench tables data install bundle:
	+@$(INSTALL_MISSING) $(SCOPES)
	@$(MAKE) --no-print-directory DEPS_ARE_DONE=1 $@

else

all: $(PROGRAMS)

demo: all
	@config/demo

quantize: all
	@config/quantize

tables: build/bin/gradsync-report
	@config/tables

tests: all $(TESTS) $(BENCHMARKS) $(RUN_MAKER)
test: tests
	@tests/run

soak: tests
	@tests/soak/run $(PARTS)

cluster: all
	@tests/slurm/cluster start

bench: all $(BENCHMARKS)
	@bench/run $(PARTS)

data: build/bin/gradsync-dataset
	$< fetch --to data/cifar-10

bundle:
	+@$(MAKE) --no-print-directory MARCH=$(BUNDLE_MARCH) all $(if $(KERNELS),build/tests/gpu build/tests/mpi build/tests/libcount_waits.so build/bench/gpu_kernels)
	@config/bundle build/bundle $(BUNDLE_MARCH)

install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/gradsync $(DESTDIR)$(PREFIX)/share/doc/gradsync
	install -m 755 $(PROGRAMS) $(DESTDIR)$(PREFIX)/bin
	cp -R jobs $(DESTDIR)$(PREFIX)/share/gradsync/
	cp -R $(wildcard README.md docs) $(DESTDIR)$(PREFIX)/share/doc/gradsync/

endif

cluster-stop:
	@tests/slurm/cluster stop

lint:
	@TORCH='$(LINT_TORCH)' FLAGS='$(filter-out -fvect-cost-model=%,$(LANGUAGE)) $(COMMON_FLAGS) $(TEST_FLAGS) $(WARNINGS)' \
	  TORCH_FLAGS='$(TORCH_FLAGS) $(MPI_FLAGS)' HEAVY='$(patsubst build/obj/%.o,%.cpp,$(MPI_OBJECTS))' config/lint

format:
	find src analysis tests $(wildcard bench) \( -name '*.cpp' -o -name '*.h' -o -name '*.cu' \) -exec clang-format -i {} +

clean:
	rm -rf build

# --- how things are built ----------------------------------------------------------------------

Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-5s %s\n' $(1) $(2))

# As many jobs as cores and memory allow (a LibTorch file takes up to 2 GB); a -j of the user's wins.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(or $(BUILD_JOBS),1)
endif

# A goal like build/bin/gradsync-train, asked for by name while something is missing.
ifneq ($(MISSING_build),)
$(OBJECTS): | complete
complete:
	@config/deps --only-say build
endif

# The flags of the last build; rewritten when they change, so that everything is rebuilt.
FLAGS := $(strip $(CXX) $(LANGUAGE) $(WARNINGS) $(TORCH_FLAGS) $(MPI_FLAGS) $(COMMON_FLAGS) $(LDFLAGS) $(FULL_LIBS))
build/flags: $(if $(subst $(FLAGS),,$(file <build/flags))$(if $(wildcard build/flags),,new),always)
	@mkdir -p build
	$(file >$@,$(FLAGS))@:

build/nvcc-flags: FLAGS := $(strip $(NVCC_FOUND) $(NVCC_FLAGS))
build/nvcc-flags: $(if $(subst $(strip $(NVCC_FOUND) $(NVCC_FLAGS)),,$(file <build/nvcc-flags))$(if $(wildcard build/nvcc-flags),,new),always)
	@mkdir -p build
	$(file >$@,$(FLAGS))@:

# GCC takes a precompiled header only under the very flags it was made with, warnings included.
build/gch/pch/torch.h.gch: src/pch/torch.h build/flags
	$(call say,PCH,$<)
	@mkdir -p $(@D)
	$(Q)$(CXX) -x c++-header $(LANGUAGE) $(WARNINGS) $(TORCH_FLAGS) $(MPI_FLAGS) $(COMMON_FLAGS) $< -o $@

EXTRA :=
PLACE :=
$(MPI_OBJECTS): private EXTRA = $(MPI_FLAGS)
$(TORCH_OBJECTS): private EXTRA = -Ibuild/gch -include pch/torch.h -Winvalid-pch $(TORCH_FLAGS) $(MPI_FLAGS)
$(TORCH_OBJECTS): build/gch/pch/torch.h.gch
$(TEST_OBJECTS): private PLACE = $(TEST_FLAGS)
# The same runs give the same tables to the last digit on every machine: no fused multiply-add.
$(REPORT) $(call objects,src/timing src/record): private EXTRA = -ffp-contract=off

# The two paths of integer inference agree to the bit only where each product is rounded by itself.
$(call objects,$(QUANTIZE_PLAIN)): private EXTRA = -ffp-contract=off
# GCC 12 warns of its own AVX-512 headers (its bug 105593).
build/obj/src/quantize/convolution_vnni.o: private EXTRA = -ffp-contract=off -Wno-maybe-uninitialized

# Only the writer of traces knows zlib.
build/obj/analysis/trace/gzip.o: private EXTRA = $(ZLIB_CFLAGS)

build/obj/%.o: %.cpp build/flags
	$(call say,CXX,$<)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(LANGUAGE) $(WARNINGS) $(EXTRA) $(COMMON_FLAGS) $(PLACE) -MMD -MP -c $< -o $@

build/obj/%.cu.o: %.cu build/nvcc-flags
	$(call say,NVCC,$<)
	@mkdir -p $(@D)
	$(Q)$(NVCC_FOUND) $(NVCC_FLAGS) -MMD -MP -MF $(@:.o=.d) -c $< -o $@

-include $(OBJECTS:.o=.d) $(KERNELS:.o=.d)

# Only version.cpp knows the revision, and is compiled again only when it changes.
build/revision: always
	@mkdir -p build
	@new=$$(git describe --always --dirty 2>/dev/null || echo unknown); \
	  [[ -e $@ && $$(<$@) == "$$new" ]] || printf '%s\n' "$$new" >$@
build/obj/src/support/version.o: build/revision
build/obj/src/support/version.o: private EXTRA = -DGRADSYNC_REVISION='"$(file <build/revision)"'

# LibTorch 2.11's libtorch.so exports parts of std::filesystem that crash when called (remove_all).
# The standard library has to come before it, both for the linker and in the loader's order.
STDCXX_FIRST := -Wl,--no-as-needed -lstdc++

# --- programs: their objects, and the libraries each may know ----------------------------------

build/bin/gradsync-train: $(call objects,src/programs/train $(FULL_PARTS)) $(KERNELS)
build/bin/gradsync-calibrate: $(call objects,src/programs/calibrate $(CALIBRATE_PARTS)) $(KERNELS)
build/bin/gradsync-quantize: $(call objects,src/programs/quantize $(QUANTIZE_PARTS)) $(KERNELS)
build/bin/gradsync-check: $(call objects,src/programs/check $(CHECK_PARTS)) $(KERNELS)
build/bin/gradsync-dataset: $(call objects,src/programs/dataset src/support src/data)
build/bin/gradsync-sweep: $(call objects,src/programs/sweep src/support src/timing src/record src/schedule src/data src/sweep src/comm/transport_choice $(TRAIN_OPTIONS))
build/bin/gradsync-report: $(call objects,src/support src/timing src/record src/schedule src/comm/transport_choice $(TRAIN_OPTIONS)) $(REPORT)
build/tests/serial: $(call objects,tests/serial tests/fuzz $(PLAIN_PARTS) src/kernels/twins src/kernels/augment_twin) \
  $(filter-out $(call objects,$(CALIBRATE_RANKS) $(CHECK_RANKS) $(CHECK_TORCH)),$(call objects,src/calibrate src/check)) \
  $(filter-out $(call objects,$(REPORT_MAIN)),$(REPORT))
build/tests/mpi: $(call objects,tests/mpi src/check $(FULL_PARTS)) $(KERNELS)
build/tests/gpu: $(call objects,tests/gpu $(FULL_PARTS)) $(KERNELS)
$(TEST_TOOLS): build/tests/%: build/obj/tests/tools/%.o $(call objects,$(FULL_PARTS)) $(KERNELS)
$(BENCHMARKS): build/bench/%: build/obj/bench/%.o $(call objects,$(FULL_PARTS)) $(KERNELS)
$(RUN_MAKER): $(call objects,bench/large_runs src/support src/timing src/record)
$(STATE_READER): $(call objects,tests/soak/read_state src/support src/timing src/record src/checkpoint)

# Libraries that tests load in place of a driver's.
$(FAKE_LIBRARIES): build/tests/lib%.so: tests/libraries/%.cpp build/flags
	$(call say,CXX,$<)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(LANGUAGE) $(WARNINGS) -shared -fPIC $< -o $@
build/tests/serial: | $(FAKE_LIBRARIES)

build/races/%.o: %.cpp build/flags
	$(call say,TSAN,$<)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(LANGUAGE) $(WARNINGS) $(COMMON_FLAGS) $(TEST_FLAGS) -g -fsanitize=thread -MMD -MP -c $< -o $@
-include $(RACES:%.cpp=build/races/%.d)
build/tests/races: $(RACES:%.cpp=build/races/%.o)
build/tests/races: private LDFLAGS += -fsanitize=thread

build/fuzz/%.o: %.cpp build/flags
	$(call say,FUZZ,$<)
	@mkdir -p $(@D)
	$(Q)$(FUZZ_CXX) -std=c++20 -O1 -gline-tables-only -DGRADSYNC_WITH_CUDA=$(WITH_CUDA) -DGRADSYNC_REVISION='"fuzz"' $(CPPFLAGS) \
	  -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined $(COMMON_FLAGS) $(TEST_FLAGS) -MMD -MP -c $< -o $@
-include $(FUZZED:.o=.d)
$(FUZZER): $(FUZZED)
	$(call say,LINK,$@)
	$(Q)$(FUZZ_CXX) -fsanitize=fuzzer,address,undefined $^ $(PLAIN_LIBS) -ldl -o $@

LINK_WITH = $(PLAIN_LIBS)
build/bin/gradsync-report build/tests/serial: private LINK_WITH = $(PLAIN_LIBS) $(ZLIB_LIBS)
build/bin/gradsync-calibrate: private LINK_WITH = $(MPI_LIBS) $(GPU_LIBS) $(PLAIN_LIBS)
build/bin/gradsync-train build/bin/gradsync-quantize build/bin/gradsync-check build/tests/mpi build/tests/gpu $(TEST_TOOLS) $(BENCHMARKS): private LINK_WITH = $(FULL_LIBS)
$(sort $(PROGRAMS) $(TESTS) build/tests/gpu $(BENCHMARKS) $(RUN_MAKER)):
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(LDFLAGS) $(filter %.o,$^) $(STDCXX_FIRST) -Wl,--as-needed $(LINK_WITH) -ldl -o $@
