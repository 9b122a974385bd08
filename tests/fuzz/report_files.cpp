// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/read/curve_file.h"
#include "analysis/read/trace_run.h"
#include "fuzz/targets.h"
#include "record/reader.h"

namespace gradsync::fuzz {

void run_file(Input input) {
  const InputFile file(text_of(input));
  const auto run = open_run(file.path());
  read_all(*run);
}

/// The trace of one rank, as text or compressed, and the run that becomes of it.
void profiler_trace(Input input) {
  const InputFile file(text_of(input));
  const auto run = report::run_of_traces({file.path()});
  read_all(*run);
}

/// What a tool for collectives printed; its ranks are stated where it does not tell them.
void curve_file(Input input) {
  const InputFile file(text_of(input));
  report::read_curve_file({file.path(), 2});
  report::read_curve_file({file.path(), 0});
}

}  // namespace gradsync::fuzz
