#include "fuzz/read_all.h"

#include <algorithm>

namespace gradsync::fuzz {

void read_all(RunReader& run) {
  const std::size_t block = rows_per_block(run.ranks(), run.index().buckets);
  for (std::size_t first = 0; first < run.iterations(); first += block) {
    const std::size_t count = std::min(block, run.iterations() - first);
    run.rows(first, count);
    for (std::size_t phase = 0; phase < kPhases; ++phase)
      run.time(static_cast<Phase>(phase), first, count);
    for (std::size_t category = 0; category < kRowCategories; ++category)
      run.traffic(static_cast<Traffic>(category), first, count);
    run.begin(first, count);
    run.loss(first, count);
    run.correct(first, count);
    run.bucket_starts(first, count);
  }
  run.option("model");
  run.status();
  run.finished();
  run.remarks();
  run.epochs();
  run.verification();
  run.calibration();
  run.windows();
  run.clocks();
  run.traffic_totals();
  run.replicas();
  run.resumes();
  run.device_samples();
  run.quantization();
}

}  // namespace gradsync::fuzz
