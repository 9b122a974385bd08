// The comparison of collectives across ranks: what they are about to do, before they do it.
#include <fmt/format.h>

#include "comm/equal_on_all.h"
#include "exchange/exchange.h"

namespace gradsync {

namespace {

/// With VerifyLevel::kInit the first iterations of the process are compared: the second one is the
/// first with rebuilt buckets.
constexpr std::int64_t kComparedIterations = 2;

struct NamedCall {
  CollectiveCall call;
  char mode[24] = {};
  char host[64] = {};
};

}  // namespace

VerifyLevel verify_level(const std::string& text) {
  if (text == "off") return VerifyLevel::kOff;
  return text == "all" ? VerifyLevel::kAll : VerifyLevel::kInit;
}

bool Exchange::compares(const CollectiveCall& call) const {
  if (size() == 1 || verify_ == VerifyLevel::kOff) return false;
  return verify_ == VerifyLevel::kAll || call.iteration < first_iteration_ + kComparedIterations;
}

void Exchange::compare(const CollectiveCall& call) {
  if (lane_ && lane_->ring.in_use(last_)) look_until(last_);
  session_.count(CollectiveKind::kAllReduce, kEqualOnAllBytes);
  if (!equal_on_all(comm_, fingerprint(call))) report_disagreement(call);
}

void Exchange::report_disagreement(const CollectiveCall& call) {
  NamedCall mine;
  mine.call = call;
  mode_name_.copy(mine.mode, sizeof mine.mode - 1);
  session_.host().copy(mine.host, sizeof mine.host - 1);
  std::vector<NamedCall> all(static_cast<std::size_t>(size()));
  MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, comm_);
  if (rank() != 0) session_.wait_for_abort();
  std::size_t other = 1;
  while (other + 1 < all.size() && all[other].call == all[0].call)
    ++other;
  const auto told = [&](std::size_t r) {
    return fmt::format("rank {} ({}) calls {}", r, all[r].host,
                       to_string(all[r].call, all[r].mode));
  };
  session_.abort(
      Error(ExitCode::kRanksDisagree,
            fmt::format("ranks disagree about a collective: {}; {}", told(0), told(other)),
            "start every rank with the same program, options and data"));
}

CollectiveCall Exchange::faulted(CollectiveCall call) {
  if (fault_ == CollectiveFault::kShort) call.count -= 1;
  if (fault_ == CollectiveFault::kOtherType) call.type = ValueType::kFloat16;
  if (fault_ == CollectiveFault::kOtherRoot) call.root += 1;
  fault_ = CollectiveFault::kNone;
  return call;
}

}  // namespace gradsync
