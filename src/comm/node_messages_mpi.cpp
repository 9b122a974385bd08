#include <algorithm>
#include <type_traits>

#include "comm/node_messages.h"

namespace gradsync {

namespace {

constexpr int kTag = 86;
constexpr double kTellEvery_s = 0.2;
/// In the long run (a slow disk): ranks that do not listen keep what they get.
constexpr double kTellSeldom_s = 2;

static_assert(std::is_trivially_copyable_v<RankReport>, "travels as bytes");

}  // namespace

NodeMessages::NodeMessages(const Session& session, const std::vector<int>& node_ranks)
    : session_(session) {
  MPI_Comm_dup(session.world(), &comm_);
  for (int rank = 0; rank < session.size(); ++rank)
    if (std::find(node_ranks.begin(), node_ranks.end(), rank) == node_ranks.end())
      others_.push_back(rank);
}

NodeMessages::~NodeMessages() {
  receive(0);
  forget_sent();
  MPI_Comm_free(&comm_);
}

/// A rank that leaves too early may have left MPI.
bool NodeMessages::possible() const {
  int over = 0;
  MPI_Finalized(&over);
  return over == 0 && !others_.empty() && session_.threads_may_call();
}

void NodeMessages::receive(double running_s) {
  if (!possible()) return;
  for (;;) {
    int arrived = 0;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, kTag, comm_, &arrived, &status);
    if (!arrived) return;
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    Told told{running_s, {}};
    told.reports.resize(static_cast<std::size_t>(bytes) / sizeof(RankReport));
    MPI_Recv(told.reports.data(), bytes, MPI_BYTE, status.MPI_SOURCE, kTag, comm_,
             MPI_STATUS_IGNORE);
    told_[status.MPI_SOURCE] = std::move(told);
  }
}

void NodeMessages::tell(const std::vector<RankReport>& node, bool expired, bool seldom,
                        double running_s) {
  if (!possible()) return;
  forget_sent();
  const double every_s = seldom ? kTellSeldom_s : kTellEvery_s;
  if (expired == told_expired_ && told_at_s_ >= 0 && running_s - told_at_s_ < every_s) return;
  told_expired_ = expired;
  told_at_s_ = running_s;
  for (const int rank : others_) {
    Sent& sent = sent_.emplace_back(Sent{node, MPI_REQUEST_NULL});
    MPI_Isend(sent.reports.data(), static_cast<int>(node.size() * sizeof(RankReport)), MPI_BYTE,
              rank, kTag, comm_, &sent.request);
  }
}

bool NodeMessages::heard(double running_s, double age_s, int below) const {
  return std::any_of(told_.begin(), told_.end(), [&](const auto& entry) {
    return entry.first < below && running_s - entry.second.at_s < age_s;
  });
}

void NodeMessages::copy_to(std::vector<RankReport>& all, double running_s, double age_s) const {
  for (const auto& [speaker, told] : told_)
    if (running_s - told.at_s < age_s)
      for (const RankReport& report : told.reports)
        all.at(static_cast<std::size_t>(report.rank)) = report;
}

void NodeMessages::forget_sent() {
  sent_.remove_if([](Sent& sent) {
    int done = 0;
    MPI_Test(&sent.request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  });
}

}  // namespace gradsync
