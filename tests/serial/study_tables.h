// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "analysis/tables/tables.h"
#include "expect_error.h"
#include "report_view.h"
#include "sample_run.h"

/// Tables of a scaling study, on runs whose times are known: an iteration i of rank r takes
/// 10 + 0.1·i + r ms (sample_run.h), so its slowest rank of n takes 10 + 0.1·i + (n − 1) ms.
namespace gradsync::testing {

using namespace gradsync::report;

inline RunSet loaded_with_failures(const RunFolder& folder) {
  return loaded(folder);
}
inline RunSet loaded_with_failures(const TestFolder& folder) {
  return load_places({folder.path().string()});
}

inline double number(const Table& table, std::size_t row, const std::string& column) {
  return table.rows.at(row)[column_of(table, column)].number;
}

/// The first row in which each column shows what is asked for.
inline std::size_t row_with(const Table& table,
                            const std::vector<std::pair<std::string, std::string>>& wanted) {
  for (std::size_t row = 0; row < table.rows.size(); ++row)
    if (std::all_of(wanted.begin(), wanted.end(),
                    [&](const auto& one) { return shown(table, row, one.first) == one.second; }))
      return row;
  FAIL("no such row");
  return 0;
}

using Change = void (*)(IterationRow&);
inline void nothing(IterationRow&) {}

/// A sample with further options and provenance, and each iteration changed.
inline void write_changed(const auto& path, const SampleShape& shape,
                          const std::vector<ConfigEntry>& options,
                          const std::vector<NamedText>& provenance, Change change = nothing,
                          const std::vector<CalibrationRow>& calibration = {}) {
  RunInfo info = sample_info(shape);
  info.config.insert(info.config.end(), options.begin(), options.end());
  info.provenance.insert(info.provenance.end(), provenance.begin(), provenance.end());
  auto&& recorder = recorder_of(path, info);
  for (const CalibrationRow& row : calibration)
    recorder.add(row);
  for (std::size_t i = 0; i < shape.iterations; ++i) {
    IterationRow row = sample_row(shape, i);
    change(row);
    recorder.add(row);
    if ((i + 1) % shape.per_epoch == 0) recorder.add(sample_epoch(shape, i / shape.per_epoch));
  }
  recorder.finish(RunStatus::kComplete);
}

inline void four_times_slower(IterationRow& row) {
  for (RankIteration& rank : row.ranks)
    for (double& time_s : rank.time_s)
      time_s *= 4;
}

}  // namespace gradsync::testing
