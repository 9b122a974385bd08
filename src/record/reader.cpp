#include "record/reader.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "record/hdf5_reader.h"
#include "record/journal.h"
#include "record/journal_run.h"
#include "support/error.h"
#include "support/file.h"

namespace gradsync {

namespace {

constexpr std::size_t kBlockBytes = 16U << 20;
constexpr std::array<unsigned char, 8> kHdf5Magic = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1A, '\n'};

/// The first 8 bytes of a file, or fewer if it is shorter.
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

std::string RunReader::option(std::string_view name) const {
  const auto& config = info().config;
  const auto found = std::find_if(config.begin(), config.end(),
                                  [&](const ConfigEntry& entry) { return entry.name == name; });
  return found == config.end() ? "" : found->value;
}

void RunReader::require_rows(std::size_t first, std::size_t count) const {
  if (first > iterations() || count > iterations() - first)
    throw Error(ExitCode::kInternal, fmt::format("rows {} to {} of {} were asked for", first,
                                                 first + count, iterations()));
}

std::size_t rows_per_block(std::size_t ranks, std::size_t buckets) {
  const std::size_t row_bytes = sizeof(IterationRow) + buckets * sizeof(BucketShape) +
                                ranks * (sizeof(RankIteration) + buckets * sizeof(BucketTimes));
  return std::max<std::size_t>(1, kBlockBytes / row_bytes);
}

std::unique_ptr<RunReader> open_run(const std::filesystem::path& path) {
  const auto front = front_of(path);
  if (looks_like_journal(front)) return open_journal(path);
  if (front.size() == kHdf5Magic.size() &&
      std::memcmp(front.data(), kHdf5Magic.data(), kHdf5Magic.size()) == 0)
    return open_hdf5(path);
  throw Error(ExitCode::kBadData,
              fmt::format("'{}' is neither a run file (HDF5) nor a journal", path.string()),
              "give the .h5 or .journal file that gradsync-train --output made");
}

}  // namespace gradsync
