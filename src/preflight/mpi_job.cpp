#include "preflight/mpi_job.h"

#include "comm/agreement.h"
#include "comm/clock_sync.h"
#include "comm/places.h"
#include "preflight/suite_libraries.h"

namespace gradsync::check {

namespace {

constexpr int kSwapTag = 69;

Place place_of(const Session& session) {
  return {
      session.rank(),   session.size(), session.local_rank(), session.local_size(), session.host(),
      core_mask().text, cpu_name()};
}

}  // namespace

MpiJob::MpiJob(const Session& session, Launcher launcher)
    : session_(session),
      launcher_(std::move(launcher)),
      transport_(session.world()),
      place_(place_of(session)) {}

CollectiveScope MpiJob::watched(CollectiveKind kind) {
  return {session_.watchdog(), kind};
}

std::vector<Library> MpiJob::libraries() const {
  return suite_libraries();
}

std::vector<std::string> MpiJob::gather(const std::string& mine) {
  return gather_texts(session_, mine);
}

std::string MpiJob::broadcast(const std::string& of_root) {
  const CollectiveScope scope = watched(CollectiveKind::kBroadcast);
  std::string text = of_root;
  auto length = static_cast<std::int64_t>(text.size());
  MPI_Bcast(&length, 1, MPI_INT64_T, 0, session_.world());
  text.resize(static_cast<std::size_t>(length));
  MPI_Bcast(text.data(), static_cast<int>(length), MPI_CHAR, 0, session_.world());
  return text;
}

void MpiJob::meet() {
  const CollectiveScope scope = watched(CollectiveKind::kBarrier);
  MPI_Barrier(session_.world());
}

SteadyOffset MpiJob::read_clock() {
  const ClockOffset clock = measure_clock_offset(session_);
  return {clock.offset_s, clock.uncertainty_s};
}

void MpiJob::sum(std::span<float> data) {
  const CollectiveScope scope = watched(CollectiveKind::kAllReduce);
  transport_.all_reduce_sum(data, Waiting::kSpin);
}

void MpiJob::swap(int peer, std::span<const float> out, std::span<float> in) {
  // Not counted as a collective: the ranks that take no part continue with the next one.
  const CollectiveScope scope(session_.watchdog(), CollectiveKind::kAllGather, -1,
                              CollectiveScope::Counts::kNo);
  MPI_Sendrecv(out.data(), static_cast<int>(out.size()), MPI_FLOAT, peer, kSwapTag, in.data(),
               static_cast<int>(in.size()), MPI_FLOAT, peer, kSwapTag, session_.world(),
               MPI_STATUS_IGNORE);
}

}  // namespace gradsync::check
