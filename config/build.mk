# SPDX-License-Identifier: BSD-3-Clause
# How the programs are built: settings, detection, flags, the classes of sources, compiling and linking.

# --- settings ----------------------------------------------------------------------------------

# Local settings (untracked, see user.mk.example); the command line wins over them.
-include user.mk

MARCH ?= native
# GCC 12 leaves the loops of the optimizer and of averaging scalar at plain -O2; vectorized they take half the
# time (bench/optimizer). -O3 does it too, and makes GCC warn of what is not there.
OPTIMIZE ?= -O2 -ftree-vectorize -fvect-cost-model=dynamic
DEBUG ?= 0
# GPU architectures with machine code of their own in the kernels; others compile PTX, of 90 where it is among them: all newer ones
# can.
CUDA_ARCHS ?= $(or $(strip $(NVCC_ARCHS)),80 90)
PREFIX ?= /usr/local
# GNU's names; data files are in bindir/../share/gradsync, where the programs look for them.
prefix = $(PREFIX)
exec_prefix = $(prefix)
bindir = $(exec_prefix)/bin
libdir = $(exec_prefix)/lib
mandir = $(prefix)/share/man
docdir = $(prefix)/share/doc/gradsync
# For which CPUs `make bundle` compiles: every x86 server since 2015.
BUNDLE_MARCH ?= x86-64-v3

# --- detection ---------------------------------------------------------------------------------

# Detection runs once, into build/config.mk (config/detect); every later make only includes it.
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
ifneq ($(filter-out help clean distclean dist format uninstall,$(GOALS)),)
include build/config.mk
endif

# What the goals need (a scope of build/config.status each), and which of them install what is missing.
SCOPES := build $(if $(filter deps check demo quantize bench test tests soak,$(GOALS)),demo) \
  $(if $(filter deps install test tests,$(GOALS)),install) $(if $(filter deps test tests soak cluster,$(GOALS)),test) $(if $(filter deps data test tests soak,$(GOALS)),data)
INSTALLS := $(if $(DRY_RUN),,$(filter deps demo test,$(GOALS)))
lacking := $(strip $(foreach scope,$(SCOPES),$(MISSING_$(scope))))

# `sudo make install` after a user's make: root's PATH and HOME are others, and what was built is to be installed.
BUILT_BY_USER := $(if $(filter-out install installcheck uninstall,$(GOALS)),,$(shell [ "$$(id -u)" != 0 ] || find build/config.mk ! -uid 0 2>/dev/null))

# Make starts over once build/config.mk is rebuilt; the second time it takes it as it is.
ifeq ($(MAKE_RESTARTS)$(BUILT_BY_USER),)
stale := $(or $(filter status deps,$(GOALS)),$(lacking),\
  $(if $(wildcard $(LIBTORCH_FOUND)/lib/libtorch_cpu.so),,gone),\
  $(if $(call holds,build/config.input,$(DETECTION_INPUT)),,changed))
build/config.mk: export DETECTION_INPUT := $(DETECTION_INPUT)
$(foreach v,$(DETECTED_BY) DOWNLOAD LOCKS,$(eval build/config.mk: export $(v) := $($(v))))
build/config.mk: config/detect $(wildcard config/find/*.sh config/common.sh user.mk) $(if $(stale),always)
	@config/detect
	$(if $(INSTALLS),@config/deps $(SCOPES))
endif

# Said before anything is built: a wrong PREFIX, and how long the first build of the demo takes.
ifneq ($(filter install uninstall installcheck,$(GOALS)),)
$(if $(filter /%,$(firstword $(prefix))),,$(error PREFIX='$(prefix)' is not an absolute path; for example: make install PREFIX=/opt/gradsync))
endif
# sinfo answers on the login node of a cluster; in a job SLURM_JOB_ID is set.
ifneq ($(filter demo test soak bench,$(GOALS)),)
$(if $(SLURM_JOB_ID)$(MAKE_RESTARTS),,$(if $(shell timeout 2 sinfo -h -o %P 2>/dev/null),\
  $(info gradsync: this takes all cores of a node, which looks like a login node: srun make $(GOALS) runs it on another)))
endif
ifneq ($(and $(filter demo,$(GOALS)),$(if $(wildcard build/bin/gradsync-train),,new)),)
$(if $(DRY_RUN)$(stale),,$(info == build: all programs, 3 to 5 minutes on 2 cores; then the demo, about 2 minutes))
endif

# --- flags -------------------------------------------------------------------------------------

# Texts of LibTorch's headers are in the programs, with the path of the header; not with the builder's home.
WITHOUT_PATHS = $(if $(LIBTORCH_FOUND),-ffile-prefix-map=$(LIBTORCH_FOUND)=libtorch) $(if $(filter 1,$(DEBUG)),-ffile-prefix-map=$(CURDIR)=.)
WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wconversion
LANGUAGE = -std=c++20 $(OPTIMIZE) $(if $(MARCH),-march=$(MARCH)) $(if $(filter 1,$(DEBUG)),-g) \
  -DGRADSYNC_WITH_CUDA=$(WITH_CUDA) $(CPPFLAGS) $(CXXFLAGS)
# LibTorch's folder goes before the others: it brings the fmt that its own headers need, as headers only
# and in a namespace of its version, so that it does not meet the system's.
# Classes of LibTorch's headers have members of their own without NDEBUG, which its libraries are built with.
TORCH_FLAGS = $(TORCH_CFLAGS) $(strip $(WITHOUT_PATHS)) -DNDEBUG -DFMT_HEADER_ONLY -Wno-interference-size $(if $(filter 1,$(WITH_CUDA)),-DUSE_C10D_NCCL)
MPI_FLAGS = $(MPI_CFLAGS) $(CUDA_CFLAGS) $(NCCL_CFLAGS)
COMMON_FLAGS = -Isrc $(HDF5_CFLAGS) $(BOOST_CFLAGS) $(FMT_CFLAGS) $(JSON_CFLAGS) $(SSL_CFLAGS)
TEST_FLAGS = -I. -Itests $(DOCTEST_CFLAGS)

NVCC_FLAGS = -std=c++20 -O3 --expt-relaxed-constexpr -ccbin $(lastword $(CXX)) -Isrc -DGRADSYNC_WITH_CUDA=1 \
  -Xcompiler -Wall,-Wextra,-Wshadow,-Wconversion --Werror cross-execution-space-call,default-stream-launch \
  $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$a,code=sm_$a) \
  $(foreach a,$(or $(filter 90,$(CUDA_ARCHS)),$(lastword $(CUDA_ARCHS))),-gencode arch=compute_$a,code=compute_$a)

PLAIN_LIBS = $(FMT_LIBS) $(HDF5_LIBS) $(BOOST_LIBS) $(SSL_LIBS) -pthread
GPU_LIBS = $(CUDA_LIBS) $(NCCL_LIBS)
FULL_LIBS = $(TORCH_LIBS) $(MPI_LIBS) $(GPU_LIBS) $(PLAIN_LIBS)

# --- sources -----------------------------------------------------------------------------------

# Each a program, or with flags of its own: compiled alone.
ALONE := $(wildcard src/*/main*.cpp analysis/main.cpp analysis/*/main.cpp bench/*.cpp tests/tools/*.cpp tests/soak/*.cpp tests/*/main.cpp) \
  src/base/version.cpp
include config/unity.mk

# The name of a source states what it may include: *_torch.cpp everything, *_mpi.cpp MPI and CUDA, any other neither (config/walls).
in_folder = $(filter-out $(ALONE),$(sort $(wildcard $(1)/*.cpp)))
torch_in = $(filter %_torch.cpp,$(call in_folder,$(1)))
mpi_in = $(filter %_mpi.cpp,$(call in_folder,$(1)))
plain_in = $(filter-out %_mpi.cpp %_torch.cpp,$(call in_folder,$(1)))

ROOMS := $(patsubst %/,%,$(sort $(dir $(wildcard src/*/*.cpp src/*/*/*.cpp))))
REPORT := analysis $(patsubst %/,%,$(sort $(dir $(wildcard analysis/*/*.cpp))))
# The plain sources of these give sums that are the same to the last digit on every machine and with every kernel: no fused
# multiply-add.
UNFUSED := src/stats src/record src/sync src/quantize $(REPORT)
# No iteration waits for the plain sources of these: -O2 takes half as long again to compile.
COLD := src/check src/options src/comm src/sweep $(REPORT)

plain_objects = $(call unity_of,$(AT_ONCE),plain_in,$(1))
alone = $(patsubst %.cpp,build/alone/%.o,$(filter $(addsuffix /%,$(1)),$(ALONE)))
MAIN_OBJECTS := $(filter-out build/alone/src/base/version.o,$(call alone,src analysis))
PLAIN_OBJECTS := $(call plain_objects,$(ROOMS)) build/alone/src/base/version.o
MPI_OBJECTS := $(call unity_of,$(AT_ONCE),mpi_in,$(ROOMS))
TORCH_OBJECTS := $(call unity_of,$(AT_ONCE_TORCH),torch_in,$(ROOMS))
REPORT_OBJECTS := $(call plain_objects,$(REPORT))
# A LibTorch without CUDA: the kernels' CPU implementations are all there is.
KERNELS := $(if $(filter 1,$(WITH_CUDA)),$(patsubst %.cu,build/alone/%.cu.o,$(wildcard src/machine/*.cu)))
# Each can be linked with those before it.
LIBRARIES := build/plain.a build/mpi.a build/torch.a build/report.a

# Where the main file of each program is.
MAINS := dataset:src/data/main sweep:src/sweep/main report:analysis/main \
  calibrate:src/calibrate/main_mpi check:src/check/main_mpi quantize:src/quantize/main_torch train:src/train/main_torch
PROGRAMS := $(foreach main,$(MAINS),build/bin/gradsync-$(firstword $(subst :, ,$(main))))
# Python, without anything to compile.
AUDIT := build/bin/gradsync-audit
include tests/build.mk

$(call remove_stale,$(STALE_UNITY),$(LIBRARIES) $(TESTS) build/tests/gpu $(FUZZER))

USES_TORCH := $(TORCH_OBJECTS) $(TORCH_TEST_OBJECTS) $(filter %_torch.o,$(MAIN_OBJECTS))
USES_MPI := $(MPI_OBJECTS) $(filter %_mpi.o,$(MAIN_OBJECTS))
OBJECTS := $(sort $(PLAIN_OBJECTS) $(REPORT_OBJECTS) $(MAIN_OBJECTS) $(USES_MPI) $(USES_TORCH) $(TEST_OBJECTS))

# --- compiling ---------------------------------------------------------------------------------

Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-5s %s\n' $(1) $(2))

# As many jobs as cores and memory allow (a LibTorch file takes up to 2 GB); a -j of the user's wins.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(or $(BUILD_JOBS),1)
endif

# Nothing is compiled while something that the goals need is missing.
ifneq ($(lacking),)
$(OBJECTS) $(KERNELS) build/gch/base/precompiled_torch.h.gch: | complete
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
PRECOMPILED := base/precompiled_torch.h
build/gch/$(PRECOMPILED).gch: src/$(PRECOMPILED) build/flags
	$(call say,PCH,$<)
	@mkdir -p $(@D)
	$(Q)$(NICE) $(CXX) -x c++-header $(LANGUAGE) $(WARNINGS) $(TORCH_FLAGS) $(MPI_FLAGS) $(COMMON_FLAGS) $< -o $@

EXTRA :=
PLACE :=
$(USES_MPI): private EXTRA = $(MPI_FLAGS)
$(USES_TORCH): private EXTRA = -Ibuild/gch -include $(PRECOMPILED) -Winvalid-pch $(TORCH_FLAGS) $(MPI_FLAGS)
$(USES_TORCH): build/gch/$(PRECOMPILED).gch
$(TEST_OBJECTS) $(REPORT_OBJECTS) $(call alone,analysis): private PLACE = $(TEST_FLAGS)
$(SERIAL_OBJECTS) $(call plain_objects,$(COLD)): private OPTIMIZE = -O1
$(call plain_objects,$(UNFUSED)): private EXTRA = -ffp-contract=off $(ZLIB_CFLAGS) $(SIMDJSON_CFLAGS)

# The other users of the machine first.
NICE := nice -n 10
COMPILE = $(Q)$(NICE) $(CXX) $(LANGUAGE) $(WARNINGS) $(EXTRA) $(COMMON_FLAGS) $(PLACE) -MMD -MP

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
	$(Q)$(NICE) $(NVCC_FOUND) $(NVCC_FLAGS) -MMD -MP -MF $(@:.o=.d) -c $< -o $@

-include $(OBJECTS:.o=.d) $(KERNELS:.o=.d)

# What config/lint reads: the same units, since most of clang-tidy's time goes into headers.
units = $(patsubst build/alone/%.o,%.cpp,$(patsubst build/unity/%.o,build/unity/%.cpp,$(1)))
LINT_INPUT = SINCE='$(SINCE)' COMPILER='$(CXX)' FLAGS='$(filter-out -fvect-cost-model=%,$(LANGUAGE)) $(WARNINGS) $(MPI_FLAGS) $(COMMON_FLAGS) $(TEST_FLAGS)' \
  TORCH_FLAGS='$(TORCH_FLAGS)' PRECOMPILED='-Ibuild/gch -include $(PRECOMPILED)' TORCH_UNITS='$(call units,$(USES_TORCH))' \
  UNITS='$(call units,$(filter-out $(USES_TORCH),$(OBJECTS))) $(wildcard tests/libraries/*.cpp tests/fuzz/libfuzzer/*.cpp)'

# HTML, CSS and JavaScript stand in files of their own; the sources beside them include each as a literal.
EMBEDDED := $(patsubst %,build/embedded/%,$(wildcard $(foreach kind,html css js,analysis/*/*.$(kind))))
build/embedded/%: %
	$(call say,TEXT,$<)
	@mkdir -p $(@D)
	@{ printf 'R"text('; cat $<; printf ')text"\n'; } >$@
$(REPORT_OBJECTS) $(FUZZ_OBJECTS): | $(EMBEDDED)

# Only version.cpp knows the revision, and is compiled again only when it changes.
build/revision: always
	@mkdir -p build
	@new=$$(cat revision 2>/dev/null || git -C src describe --always --dirty 2>/dev/null || echo unknown); \
	  [[ -e $@ && $$(<$@) == "$$new" ]] || printf '%s\n' "$$new" >$@
build/alone/src/base/version.o: build/revision
build/alone/src/base/version.o: private EXTRA = -DGRADSYNC_REVISION='"$(strip $(file <build/revision))"'

VERSION = $(shell sed -n 's/.*return "\([0-9.a-z-]*\)";/\1/p' src/base/version.cpp)
INSTALL = DESTDIR='$(DESTDIR)' bindir='$(bindir)' libdir='$(libdir)' mandir='$(mandir)' docdir='$(docdir)' config/install

# The files of the last commit with its time, and its name in the file revision: the same bytes each time.
define make_dist
@git rev-parse --git-dir >/dev/null 2>&1 || { echo 'gradsync: make dist needs the checkout, this is no checkout of git' >&2; exit 69; }
@git diff --quiet HEAD || echo 'gradsync: changes that are not committed are not in the archive' >&2
@mkdir -p build/dist && git describe --always >build/dist/revision
@set -o pipefail; git archive --prefix=gradsync-$(VERSION)/ --add-file=build/dist/revision HEAD | xz -T1 >build/gradsync-$(VERSION).tar.xz
@rm -r build/dist && echo build/gradsync-$(VERSION).tar.xz
endef

# --- linking -----------------------------------------------------------------------------------

# The package stays where it is; config/install copies it into share/gradsync.
$(AUDIT): analysis/audit/gradsync-audit.in src/base/version.cpp build/revision
	$(call say,PY,$@)
	@mkdir -p $(@D)
	$(Q)sed "s/@VERSION@/$(VERSION) (revision $$(<build/revision))/" $< >$@ && chmod 755 $@

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
# Where config/install puts libraries that other users could not read. It is the first entry, so that config/install
# can take the others out.
RUNPATH := -Wl,-rpath,'$$ORIGIN/../lib/gradsync'

# What NCCL looks for in a program: src/machine/nccl_profiler.cpp. --export-dynamic-symbol is of binutils 2.35.
FOR_NCCL := -Wl,--dynamic-list=config/nccl.list

# What each program is linked with.
WITH_PLAIN := build/bin/gradsync-dataset build/bin/gradsync-sweep $(TESTS_WITH_PLAIN)
WITH_REPORT := build/bin/gradsync-report $(TESTS_WITH_REPORT)
WITH_MPI := build/bin/gradsync-calibrate
WITH_TORCH := $(filter-out $(WITH_PLAIN) $(WITH_REPORT) $(WITH_MPI),$(PROGRAMS)) $(TESTS_WITH_TORCH)
$(WITH_PLAIN): build/plain.a
$(WITH_REPORT): build/report.a build/plain.a
$(WITH_MPI): build/mpi.a build/plain.a
$(WITH_TORCH): build/torch.a build/mpi.a build/plain.a

LINK_WITH = $(PLAIN_LIBS)
$(WITH_REPORT): private LINK_WITH = $(PLAIN_LIBS) $(ZLIB_LIBS) $(SIMDJSON_LIBS)
$(WITH_MPI): private LINK_WITH = $(MPI_LIBS) $(GPU_LIBS) $(PLAIN_LIBS)
$(WITH_TORCH): private LINK_WITH = $(FULL_LIBS)
$(foreach main,$(MAINS),$(eval build/bin/gradsync-$(subst :,: build/alone/,$(main)).o))
$(sort $(PROGRAMS) $(TESTS) build/tests/gpu $(BENCHMARKS)):
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(NICE) $(CXX) $(LDFLAGS) $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(STDCXX_FIRST) $(RUNPATH) $(FOR_NCCL) -Wl,--as-needed $(LINK_WITH) -ldl -o $@
