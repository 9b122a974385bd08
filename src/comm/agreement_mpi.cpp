#include <array>

#include "comm/agreement.h"
#include "record/recorded_environment.h"

namespace gradsync {

std::vector<std::string> gather_texts(const Session& session, const std::string& mine) {
  const int length = static_cast<int>(mine.size());
  const auto ranks = static_cast<std::size_t>(session.size());
  std::vector<int> lengths(ranks), starts(ranks);
  const auto watched = session.control(CollectiveKind::kGather, sizeof length);
  MPI_Gather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, 0, session.world());
  for (std::size_t i = 1; i < ranks; ++i)
    starts[i] = starts[i - 1] + lengths[i - 1];
  std::string all(static_cast<std::size_t>(starts.back() + lengths.back()), ' ');
  MPI_Gatherv(mine.data(), length, MPI_CHAR, all.data(), lengths.data(), starts.data(), MPI_CHAR, 0,
              session.world());
  const std::int64_t others = static_cast<std::int64_t>(all.size()) - length;
  session.ledger().add(Traffic::kControl,
                       session.root() ? LinkBytes{0, others} : LinkBytes{length, 0});
  std::vector<std::string> texts;
  for (std::size_t i = 0; session.root() && i < ranks; ++i)
    texts.push_back(
        all.substr(static_cast<std::size_t>(starts[i]), static_cast<std::size_t>(lengths[i])));
  return texts;
}

void require_agreement(const Session& session, const std::vector<NamedText>& stated) {
  const auto texts = gather_texts(session, packed_statement(session.host(), stated));
  if (session.root())
    if (const auto error = disagreement(texts)) session.abort(*error);
  const auto watched = session.control(CollectiveKind::kBarrier, 0);
  MPI_Barrier(session.world());
}

bool equal_on_all(MPI_Comm comm, std::uint64_t value) {
  // The maximum of the complement is the complement of the minimum.
  const std::array<std::uint64_t, 2> mine = {value, ~value};
  std::array<std::uint64_t, 2> most{};
  MPI_Allreduce(mine.data(), most.data(), 2, MPI_UINT64_T, MPI_MAX, comm);
  return most[0] == ~most[1];
}

}  // namespace gradsync
