// SPDX-License-Identifier: BSD-3-Clause
#include "fuzz/targets.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "base/error.h"
#include "base/file.h"

namespace gradsync::fuzz {

namespace {

constexpr std::array kTargets = {Target{"checkpoint", checkpoint},
                                 Target{"cifar10", cifar10},
                                 Target{"curve_file", curve_file},
                                 Target{"int8_file", int8_file},
                                 Target{"job_file", job_file},
                                 Target{"journal", journal},
                                 Target{"options", options},
                                 Target{"profiler_trace", profiler_trace},
                                 Target{"ring_handshake", ring_handshake},
                                 Target{"run_file", run_file},
                                 Target{"site_file", site_file},
                                 Target{"sweep_records", sweep_records}};

}  // namespace

std::span<const Target> targets() {
  return kTargets;
}

void run(const Target& target, Input input) {
  try {
    target.run(input);
  } catch (const Error&) {
    // Refused, with a message.
  }
}

InputFile::InputFile(std::string_view content) : file_(::memfd_create("input", MFD_CLOEXEC)) {
  write_all(file_.get(), std::as_bytes(std::span(content)), "input");
}

std::filesystem::path InputFile::path() const {
  return "/proc/self/fd/" + std::to_string(file_.get());
}

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

void Folder::write(const std::string& name, std::string_view content) const {
  std::ofstream(path() / name, std::ios::binary) << content;
}

}  // namespace gradsync::fuzz
