#pragma once

#include <cstdint>
#include <string>

namespace gradsync {

/// Where a run that was stopped or killed was resumed; `/resume`. Journal records from byte
/// `journal_bytes` up to this one were measured after the checkpoint of the resume, and are
/// discarded.
struct ResumeRow {
  std::int64_t iteration = 0;      ///< first iteration after it
  std::int64_t journal_bytes = 0;  ///< what counts of the journal before it
  std::string time;                ///< ISO 8601, UTC
  std::string hosts;               ///< of the ranks from here on: "node1,node2"
};

}  // namespace gradsync
