// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

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

CollectiveCall call_of(CollectiveKind kind, ValueType type, ReduceOp op, std::size_t count,
                       int root) {
  CollectiveCall call;
  call.kind = kind;
  call.type = type;
  call.op = op;
  call.count = static_cast<std::int64_t>(count);
  call.root = root;
  return call;
}

std::int64_t bytes_of(const CollectiveCall& call) {
  return call.count * value_bytes(call.type);
}

CollectiveLog::CollectiveLog(const Session& session, VerifyLevel verify)
    : session_(session), verify_(verify) {
  const CollectiveScope watched(session.watchdog(), CollectiveKind::kBarrier);
  MPI_Comm_dup(session.world(), &comm_);
  gate_before_ = session.set_control_gate(control_gate());
}

Session::ControlGate CollectiveLog::control_gate() {
  return [this](const CollectiveCall& call, Traffic category, FunctionRef<void()> body) {
    begin(call, *current_, [&](const CollectiveCall& named) {
      enter_in_ledger(named, category);
      body();
      if (timing_) count(named, category, *current_);
    });
  };
}

void CollectiveLog::take_control_values() {
  session_.set_control_gate(control_gate());
}

CollectiveLog::~CollectiveLog() {
  session_.set_control_gate(std::move(gate_before_));
  MPI_Comm_free(&comm_);
}

void CollectiveLog::set_mode(std::uint8_t index, std::string name) {
  mode_ = index;
  mode_name_ = std::move(name);
}

void CollectiveLog::begin_iteration(std::int64_t iteration) {
  if (current_.use_count() > 1) current_ = std::make_shared<IterationLog>();
  current_->iteration = iteration;
  current_->records.clear();
  current_->traffic.fill(timing_ ? 0 : -1);  // not known, where nothing is counted
  current_->encode_s = kNotMeasured;
}

void CollectiveLog::begin(CollectiveCall call, const IterationLog& iteration_log,
                          FunctionRef<void(const CollectiveCall&)> body) {
  call.mode = mode_;
  call.iteration = iteration_log.iteration;
  if (fault_ != CollectiveFault::kNone) {
    if (fault_ == CollectiveFault::kSkip) {
      fault_ = CollectiveFault::kNone;
      return;
    }
    call = faulted(call);
  }
  const CollectiveScope watched(session_.watchdog(), call.kind, call.iteration);
  if (compares(call)) compare(call);
  body(call);
}

void CollectiveLog::count(const CollectiveCall& call, Traffic category,
                          IterationLog& iteration_log) {
  // What is outside of rows comes after an iteration, and never in it.
  if (const auto at = static_cast<std::size_t>(category); at < kRowCategories)
    iteration_log.traffic[at] +=
        traffic_bytes(call.kind, bytes_of(call), session_.rank(), session_.size(), call.root);
}

void CollectiveLog::enter_in_ledger(const CollectiveCall& call, Traffic category) {
  session_.ledger().add(
      category, link_bytes(call.kind, bytes_of(call), session_.rank(), session_.size(), call.root));
}

bool CollectiveLog::compares(const CollectiveCall& call) const {
  if (session_.size() == 1 || verify_ == VerifyLevel::kOff) return false;
  return verify_ == VerifyLevel::kAll || call.iteration < first_iteration_ + kComparedIterations;
}

void CollectiveLog::compare(const CollectiveCall& call) {
  before_comparing_();
  session_.ledger().add(Traffic::kControl, link_bytes(CollectiveKind::kAllReduce, kEqualOnAllBytes,
                                                      session_.rank(), session_.size(), 0));
  if (!equal_on_all(comm_, fingerprint(call))) report_disagreement(call);
}

void CollectiveLog::report_disagreement(const CollectiveCall& call) {
  NamedCall mine;
  mine.call = call;
  mode_name_.copy(mine.mode, sizeof mine.mode - 1);
  session_.host().copy(mine.host, sizeof mine.host - 1);
  std::vector<NamedCall> all(static_cast<std::size_t>(session_.size()));
  MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, comm_);
  if (!session_.root()) session_.wait_for_abort();
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

CollectiveCall CollectiveLog::faulted(CollectiveCall call) {
  if (fault_ == CollectiveFault::kShort) call.count -= 1;
  if (fault_ == CollectiveFault::kOtherType) call.type = ValueType::kFloat16;
  if (fault_ == CollectiveFault::kOtherRoot) call.root += 1;
  fault_ = CollectiveFault::kNone;
  return call;
}

}  // namespace gradsync
