# SPDX-License-Identifier: BSD-3-Clause
# Several sources are compiled as one file of includes below build/unity, so that their headers are read once: the programs take
# half the time. Such a file is named after the first of its sources and written, while make reads this, when its text changes.
# UNITY=no compiles each source alone: an error then is of that source, and nothing depends on a neighbor's includes.

AT_ONCE := $(if $(filter no,$(UNITY)),1,12)
# Sources that see LibTorch take most memory and time.
AT_ONCE_TORCH := $(if $(filter no,$(UNITY)),1,10)

READS_SOURCES := $(filter-out help clean format status deps,$(GOALS))
define newline


endef
number := \#
includes = $(foreach source,$(1),$(number)include "$(source)"$(newline))
write_unity = $(eval UNITY_FILES += $(1))$(if $(call holds,$(1),$(call includes,$(2))),,\
  $(shell mkdir -p $(dir $(1)))$(file >$(1),$(call includes,$(2))))
# AT-ONCE, SOURCES: the objects of the sources, so many of them in each; their files are written.
unity = $(if $(2),$(if $(READS_SOURCES),$(call write_unity,build/unity/$(firstword $(2)),$(wordlist 1,$(1),$(2))))\
  build/unity/$(basename $(firstword $(2))).o $(call unity,$(1),$(filter-out $(wordlist 1,$(1),$(2)),$(2))))
# AT-ONCE, FUNCTION, FOLDERS: those of each folder by itself, where FUNCTION names which of its sources.
unity_of = $(foreach folder,$(3),$(call unity,$(1),$(call $(2),$(folder))))

# Removes what an earlier layout of the sources left below build/unity, and all that may hold objects of it. Evaluated once all
# are written.
STALE_UNITY = $(if $(READS_SOURCES),$(filter-out $(UNITY_FILES),$(shell find build/unity -name '*.cpp' 2>/dev/null)))
STALE_OBJECTS = $(foreach folder,unity races fuzz,$(1:build/unity/%.cpp=build/$(folder)/%.o))
remove_stale = $(if $(1),$(shell rm -f $(1) $(STALE_OBJECTS) $(patsubst %.o,%.d,$(STALE_OBJECTS)) $(2)))
