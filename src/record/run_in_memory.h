#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "record/reader.h"

namespace gradsync {

/// A complete run that is no file: made of what another tool wrote.
class RunInMemory : public RunReader {
 public:
  explicit RunInMemory(RunInfo info = {}, RunLists lists = {})
      : info_(std::move(info)), lists_(std::move(lists)) {}

  void set(RunInfo info) { info_ = std::move(info); }
  void add(IterationRow row) {
    index_.add(row.header());
    index_.buckets = std::max(index_.buckets, row.buckets.size());
    rows_.push_back(std::move(row));
  }

  const RunInfo& info() const override { return info_; }
  RunStatus status() const override { return RunStatus::kComplete; }
  const std::string& finished() const override { return info_.created; }
  /// None: what the tool did not write is provenance (kRemarkPrefix), which a saved run keeps.
  const std::vector<std::string>& remarks() const override { return remarks_; }
  std::size_t iterations() const override { return rows_.size(); }
  std::size_t ranks() const override { return info_.topology.size(); }
  const IterationIndex& index() const override { return index_; }
  std::vector<IterationRow> rows(std::size_t first, std::size_t count) override {
    require_rows(first, count);
    const auto begin = rows_.begin() + static_cast<std::ptrdiff_t>(first);
    return {begin, begin + static_cast<std::ptrdiff_t>(count)};
  }
  const RunLists& lists() const override { return lists_; }

 private:
  RunInfo info_;
  std::vector<std::string> remarks_;
  std::vector<IterationRow> rows_;
  IterationIndex index_;
  RunLists lists_;
};

}  // namespace gradsync
