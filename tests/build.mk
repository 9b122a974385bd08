# SPDX-License-Identifier: BSD-3-Clause
# How the tests and benchmarks are built. Included by config/build.mk.

# The sources of several folders at a time: a folder of tests has few.
across = $(call unity,$(1),$(foreach folder,$(2),$(call in_folder,$(folder))))

REPORT_TESTS := tests/serial/analysis $(patsubst %/,%,$(wildcard tests/serial/analysis/*/))
PLAIN_TESTS := tests/serial $(filter-out tests/serial/analysis,$(patsubst %/,%,$(wildcard tests/serial/*/)))
MPI_TESTS := tests/mpi $(patsubst %/,%,$(wildcard tests/mpi/*/))
# What runs under ThreadSanitizer as well: these rooms and these tests.
RACY := src/transport src/base src/stats
RACY_TESTS := tests/serial/transport

SERIAL_OBJECTS := $(call unity_of,$(AT_ONCE),in_folder,tests/fuzz $(RACY_TESTS)) \
  $(call across,$(AT_ONCE),$(filter-out $(RACY_TESTS),$(PLAIN_TESTS))) $(call across,$(AT_ONCE),$(REPORT_TESTS)) $(call alone,tests/serial)
MPI_TEST_OBJECTS := $(call across,$(AT_ONCE_TORCH),$(MPI_TESTS)) $(call alone,tests/mpi)
GPU_TEST_OBJECTS := $(call across,$(AT_ONCE_TORCH),tests/gpu) $(call alone,tests/gpu)
TORCH_TEST_OBJECTS := $(MPI_TEST_OBJECTS) $(GPU_TEST_OBJECTS) $(call alone,tests/tools bench)
TEST_OBJECTS := $(SERIAL_OBJECTS) $(TORCH_TEST_OBJECTS) $(call alone,tests/soak)

FAKE_LIBRARIES := $(patsubst tests/libraries/%.cpp,build/tests/lib%.so,$(wildcard tests/libraries/*.cpp))
TEST_TOOLS := $(patsubst tests/tools/%.cpp,build/tests/%,$(wildcard tests/tools/*.cpp))
# Reads what a crash may leave of a run, for tests/soak/crash.py.
STATE_READER := build/tests/read_state
TESTS := build/tests/serial build/tests/races build/tests/mpi $(if $(KERNELS),build/tests/gpu) $(TEST_TOOLS) $(STATE_READER)
BENCHMARKS := $(patsubst bench/%.cpp,build/bench/%,$(wildcard bench/*.cpp))

TESTS_WITH_PLAIN := $(STATE_READER)
TESTS_WITH_REPORT := build/tests/serial
TESTS_WITH_TORCH := build/tests/mpi build/tests/gpu $(TEST_TOOLS) $(BENCHMARKS)

build/tests/serial: $(SERIAL_OBJECTS)
build/tests/mpi: $(MPI_TEST_OBJECTS)
build/tests/gpu: $(GPU_TEST_OBJECTS)
$(TEST_TOOLS): build/tests/%: build/alone/tests/tools/%.o
$(BENCHMARKS): build/bench/%: build/alone/bench/%.o
$(STATE_READER): build/alone/tests/soak/read_state.o

# Libraries that tests load in place of a driver's.
$(FAKE_LIBRARIES): build/tests/lib%.so: tests/libraries/%.cpp build/flags
	$(call say,CXX,$<)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(LANGUAGE) $(WARNINGS) -shared -fPIC $< -o $@
build/tests/serial: | $(FAKE_LIBRARIES) $(AUDIT) build/tests/corpus
build/tests/corpus: tests/fuzz/corpus.tar.xz
	$(Q)rm -rf $@ && mkdir -p $@ && tar -xf $< -C $@

# --- compiled again under a sanitizer ----------------------------------------------------------

# OBJECTS, TREE
other_tree = $(patsubst build/alone/%,build/$(2)/alone/%,$(patsubst build/unity/%,build/$(2)/%,$(1)))

RACE_OBJECTS := $(call other_tree,$(call plain_objects,$(RACY)) $(call unity_of,$(AT_ONCE),in_folder,$(RACY_TESTS)) \
  build/alone/src/base/version.o build/alone/tests/serial/main.o,races)
build/races/%.o: COMPILE_AGAIN = $(CXX) $(LANGUAGE) $(WARNINGS) -DGRADSYNC_REVISION='"races"' -g -fsanitize=thread
build/tests/races: $(RACE_OBJECTS)
build/tests/races: private LDFLAGS += -fsanitize=thread

# Every parser under libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer, for tests/soak/fuzz.py: by clang.
FUZZ_CXX ?= $(filter ccache,$(CXX)) clang++
FUZZER := build/fuzz/fuzz
FUZZ_OBJECTS := $(call other_tree,$(call plain_objects,$(ROOMS) $(filter-out analysis,$(REPORT))) \
  $(call unity_of,$(AT_ONCE),in_folder,tests/fuzz tests/fuzz/libfuzzer) build/alone/src/base/version.o,fuzz)
build/fuzz/%.o: COMPILE_AGAIN = $(FUZZ_CXX) -std=c++20 -O1 -gline-tables-only -DGRADSYNC_WITH_CUDA=$(WITH_CUDA) \
  -DGRADSYNC_REVISION='"fuzz"' $(CPPFLAGS) -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
$(FUZZER): $(FUZZ_OBJECTS)
	$(call say,LINK,$@)
	$(Q)$(FUZZ_CXX) -fsanitize=fuzzer,address,undefined $^ $(PLAIN_LIBS) $(ZLIB_LIBS) $(SIMDJSON_LIBS) -ldl -o $@

compile_again = $(Q)$(NICE) $(COMPILE_AGAIN) $(COMMON_FLAGS) $(ZLIB_CFLAGS) $(SIMDJSON_CFLAGS) $(TEST_FLAGS) -MMD -MP -iquote . -c $< -o $@
define tree_rules
build/$(1)/alone/%.o: %.cpp build/flags
	$$(call say,$(2),$$<)
	@mkdir -p $$(@D)
	$$(compile_again)
build/$(1)/%.o: build/unity/%.cpp build/flags
	$$(call say,$(2),$$*)
	@mkdir -p $$(@D)
	$$(compile_again)
endef
$(eval $(call tree_rules,races,TSAN))
$(eval $(call tree_rules,fuzz,FUZZ))
-include $(RACE_OBJECTS:.o=.d) $(FUZZ_OBJECTS:.o=.d)
