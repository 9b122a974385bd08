#include "options/fault.h"

#include <charconv>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace gradsync {

namespace {

struct NamedFault {
  std::string name;
  FaultKind kind;
};

const std::vector<NamedFault>& faults() {
  static const std::vector<NamedFault> all = {
      {"nan", FaultKind::kNan},
      {"kill", FaultKind::kKill},
      {"stop", FaultKind::kStop},
      {"leave", FaultKind::kLeave},
      {"skip", FaultKind::kSkip},
      {"short", FaultKind::kShort},
      {"other-type", FaultKind::kOtherType},
      {"other-root", FaultKind::kOtherRoot},
      {"out-of-memory", FaultKind::kOutOfMemory},
      {"usr1", FaultKind::kUsr1},
      {"term", FaultKind::kTerm},
      {"delay", FaultKind::kDelay},
  };
  return all;
}

template <typename Number>
bool read_number(const std::string& text, Number& value) {
  const auto end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && last == end && value >= 0;
}

}  // namespace

Fault parse_fault(const std::string& text) {
  if (text.empty()) return {};
  Fault fault;
  const auto at = text.find('@'), colon = text.find(':');
  const std::string kind = text.substr(0, at);
  for (const NamedFault& one : faults())
    if (one.name == kind) fault.kind = one.kind;
  const bool shaped = at != std::string::npos && colon != std::string::npos && at < colon;
  if (fault.kind == FaultKind::kNone || !shaped ||
      !read_number(text.substr(at + 1, colon - at - 1), fault.rank) ||
      !read_number(text.substr(colon + 1), fault.iteration)) {
    std::vector<std::string> names;
    for (const NamedFault& one : faults())
      names.push_back(one.name);
    throw Error(ExitCode::kUsage,
                fmt::format("--inject-fault {}: expected KIND@RANK:ITERATION", text),
                fmt::format("KIND is one of {}", fmt::join(names, ", ")));
  }
  return fault;
}

}  // namespace gradsync
