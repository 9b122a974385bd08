#pragma once

#include <list>
#include <map>
#include <vector>

#include <mpi.h>

#include "comm/hang_report.h"
#include "comm/session.h"

namespace gradsync {

/// How the watchdogs of different nodes exchange the statuses of their ranks once a wait has
/// expired. One rank speaks for a node; every rank of the other nodes gets what it says, since any
/// of them may have to speak. Nothing is sent while all is well.
class NodeMessages {
 public:
  /// `node_ranks`: the ranks that share memory with this one. Collective over the session's ranks.
  NodeMessages(const Session& session, const std::vector<int>& node_ranks);
  /// Collective.
  ~NodeMessages();
  NodeMessages(const NodeMessages&) = delete;
  NodeMessages& operator=(const NodeMessages&) = delete;

  /// Takes what has come. `running_s` here and below: time during which the caller ran.
  void receive(double running_s);
  /// Tells the others, if they have not been told the same lately. `seldom`: it has been going on
  /// for long.
  void tell(const std::vector<RankReport>& node, bool expired, bool seldom, double running_s);
  /// Whether the others believe that a rank of this node has waited too long.
  bool told_expired() const { return told_expired_; }
  /// Whether a node has told something within `age_s`; only those whose speaker is below a rank.
  bool heard(double running_s, double age_s, int below) const;
  /// Copies what was told within `age_s` to the places of the ranks in `all`.
  void copy_to(std::vector<RankReport>& all, double running_s, double age_s) const;

 private:
  /// What the speaker of a node has told last.
  struct Told {
    double at_s = 0;
    std::vector<RankReport> reports;
  };
  /// A message under way: its bytes stay until it has left.
  struct Sent {
    std::vector<RankReport> reports;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  bool possible() const;
  void forget_sent();

  const Session& session_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::vector<int> others_;  ///< ranks of other nodes
  std::map<int, Told> told_;
  std::list<Sent> sent_;
  double told_at_s_ = -1;
  bool told_expired_ = false;
};

}  // namespace gradsync
