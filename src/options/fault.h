#pragma once

#include <cstdint>
#include <string>

namespace gradsync {

/// A fault that a test requests with --inject-fault KIND@RANK:ITERATION.
enum class FaultKind {
  kNone,
  kNan,
  kKill,
  kStop,
  kLeave,
  kSkip,
  kShort,
  kOtherType,
  kOtherRoot,
  kOutOfMemory,
  kUsr1,
  kTerm,
  kDelay  ///< sleeps for kDelay_s
};

/// How late the delayed rank is.
inline constexpr double kDelay_s = 3;

struct Fault {
  FaultKind kind = FaultKind::kNone;
  int rank = 0;
  std::int64_t iteration = 0;

  bool due(int at_rank, std::int64_t at_iteration) const {
    return kind != FaultKind::kNone && rank == at_rank && iteration == at_iteration;
  }
};

/// Reads "nan@1:5"; an empty text is no fault. Throws Error kUsage listing the kinds.
Fault parse_fault(const std::string& text);

}  // namespace gradsync
