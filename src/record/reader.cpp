// SPDX-License-Identifier: BSD-3-Clause
#include "record/reader.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "record/journal.h"

namespace gradsync {

namespace {

constexpr std::size_t kRowBlockBytes = 16U << 20;
constexpr std::array<unsigned char, 8> kHdf5Magic = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1A, '\n'};

std::vector<std::byte> front_of(const std::filesystem::path& path) {
  const UniqueFd file = open_for_reading(path);
  std::vector<std::byte> front(kHdf5Magic.size());
  std::size_t have = 0;
  while (const std::size_t count = read_some(file.get(), std::span(front).subspan(have), path))
    have += count;
  front.resize(have);
  return front;
}

}  // namespace

void IterationIndex::add(const IterationHeader& row) {
  iteration.push_back(row.iteration);
  epoch.push_back(row.epoch);
  step.push_back(row.step);
  samples.push_back(row.samples);
  round.push_back(row.round);
  learning_rate.push_back(row.learning_rate);
  warmup.push_back(row.warmup);
}

void IterationIndex::resize(std::size_t count) {
  for (auto* column : {&iteration, &epoch, &step, &samples})
    column->resize(count);
  round.resize(count);
  learning_rate.resize(count);
  warmup.resize(count);
}

const Quantization& RunReader::quantization() const {
  static const Quantization kNone;
  return quantizations().empty() ? kNone : quantizations().back();
}

std::string RunReader::option(std::string_view name) const {
  const auto& config = info().config;
  const auto found = std::ranges::find(config, name, &ConfigEntry::name);
  return found == config.end() ? "" : found->value;
}

void RunReader::require_rows(std::size_t first, std::size_t count) const {
  if (first > iterations() || count > iterations() - first)
    throw Error(ExitCode::kInternal, fmt::format("rows {} to {} of {} were asked for", first,
                                                 first + count, iterations()));
}

namespace {

struct FieldPicker {
  const Field& field;
  double value = kNotMeasured;

  template <typename Value>
  void operator()(const Field& one, const Value& found) {
    if (one.name == field.name && one.group == field.group) value = static_cast<double>(found);
  }
  template <typename Row>
  void operator()(const Nested&, const std::vector<Row>&) {}
};

}  // namespace

// What is read from all that a row holds; formats that keep matrices apart read them faster.
Matrix RunReader::matrix(const Field& field, std::size_t first, std::size_t count) {
  require_rows(first, count);
  Matrix result{count, ranks(), {}};
  result.values.reserve(count * ranks());
  const std::size_t most = rows_per_block(ranks(), index().buckets);
  FieldPicker picker{field};
  for (std::size_t done = 0; done < count; done += most)
    for (const IterationRow& row : rows(first + done, std::min(most, count - done)))
      for (const RankIteration& rank : row.ranks) {
        visit_fields(rank, picker);
        result.values.push_back(picker.value);
      }
  return result;
}

Matrix RunReader::traffic(Traffic category, std::size_t first, std::size_t count) {
  Matrix bytes = matrix(traffic_field(category), first, count);
  std::ranges::transform(bytes.values, bytes.values.begin(), known_bytes);
  return bytes;
}

Matrix RunReader::bucket_starts(std::size_t first, std::size_t count) {
  require_rows(first, count);
  Matrix result{count, index().buckets * ranks(), {}};
  result.values.assign(count * result.columns, kNotMeasured);
  for (std::size_t i = 0; i < count; ++i) {
    const IterationRow row = rows(first + i, 1).front();
    for (std::size_t rank = 0; rank < ranks(); ++rank)
      for (std::size_t b = 0; b < row.buckets.size(); ++b)
        result.values[i * result.columns + b * ranks() + rank] = row.ranks[rank].buckets[b].start_s;
  }
  return result;
}

std::size_t rows_per_block(std::size_t ranks, std::size_t buckets) {
  const std::size_t row_bytes = sizeof(IterationRow) + buckets * sizeof(BucketShape) +
                                ranks * (sizeof(RankIteration) + buckets * sizeof(BucketTimes));
  return std::max<std::size_t>(1, kRowBlockBytes / row_bytes);
}

std::unique_ptr<RunReader> open_run(const std::filesystem::path& path) {
  const auto front = front_of(path);
  if (looks_like_journal(front)) return std::make_unique<JournalRun>(path);
  if (front.size() == kHdf5Magic.size() &&
      std::memcmp(front.data(), kHdf5Magic.data(), kHdf5Magic.size()) == 0)
    return open_hdf5(path);
  throw Error(ExitCode::kBadData,
              fmt::format("'{}' is neither a run file (HDF5) nor a journal", path.string()),
              "give the .h5 or .journal file that gradsync-train --output made");
}

}  // namespace gradsync
