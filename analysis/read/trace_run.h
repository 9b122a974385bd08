// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "record/reader.h"

namespace gradsync::report {

/// Is called before each trace is read, with how many went before it, of how many.
using AboutToRead = std::function<void(std::size_t done, std::size_t all)>;

/// Makes a run of the traces of torch.profiler (docs/page-and-trace.md), one a rank in any order,
/// held in memory. `job` says what traces do not hold.
///
/// Provenance holds what the traces lack (kRemarkPrefix). A rank without a trace has no numbers
/// (NaN). Where the arrival of the last rank at collectives is not known (a rank is missing, the
/// ranks' collectives differ, clocks contradict each other) the run is of schema 1: straggler wait
/// is a part of communication. Throws Error kBadData: two traces of one rank, traces of jobs of
/// different size, no iteration that all traces hold, and as read_trace_events and rank_timeline
/// do.
struct TracedJob {
  std::int64_t batch_per_rank = 0;  ///< 0: unknown, and n/a in tables
  std::string model;                ///< name of the network; empty: that of the traces' folder
};
std::unique_ptr<RunReader> run_of_traces(const std::vector<std::filesystem::path>& traces,
                                         const TracedJob& job = {},
                                         const AboutToRead& about_to_read = {});

/// The traces among `places`: files as they are, and of folders those that end in .json or
/// .json.gz, in order of path. Throws Error kNoInput if there are none.
std::vector<std::filesystem::path> find_traces(const std::vector<std::string>& places);

/// Whether a name is that of a trace.
bool is_trace_name(const std::filesystem::path& path);

}  // namespace gradsync::report
