#pragma once

#include <cstdint>
#include <string>

namespace gradsync {

/// A run that was stopped or killed went on from here; `/resume`. What the journal holds from byte
/// `journal_bytes` up to this record was measured after the place the run went back to, and counts
/// no more.
struct ResumeRow {
  std::int64_t iteration = 0;      ///< first iteration after it
  std::int64_t journal_bytes = 0;  ///< what counts of the journal before it
  std::string time;                ///< ISO 8601, UTC
  std::string hosts;               ///< of the ranks from here on: "node1,node2"
};

}  // namespace gradsync
