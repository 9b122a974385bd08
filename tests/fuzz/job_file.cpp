#include "sweep/job_file.h"

#include "fuzz/targets.h"
#include "sweep/grid.h"

namespace gradsync::fuzz {

namespace {

/// A grid may have 100,000 cells, which takes seconds by right.
bool is_small(const sweep::Job& job) {
  std::int64_t cells = job.repeats;
  for (const sweep::Axis& axis : job.axes)
    if ((cells *= static_cast<std::int64_t>(axis.values.size())) > 200) return false;
  return cells <= 200;
}

}  // namespace

void job_file(Input input) {
  const InputFile file(text_of(input));
  const sweep::Job job = sweep::read_job(file.path());
  if (is_small(job)) sweep::expand(job);
}

}  // namespace gradsync::fuzz
