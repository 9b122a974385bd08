#include "analysis/kineto/trace_run.h"
#include "fuzz/targets.h"

namespace gradsync::fuzz {

/// The trace of one rank, as text or compressed, and the run that becomes of it.
void profiler_trace(Input input) {
  const InputFile file(text_of(input));
  const auto run = report::run_of_traces({file.path()});
  read_all(*run);
}

}  // namespace gradsync::fuzz
