#include <vector>

#include "transport/direct_transport.h"

#if defined(OPEN_MPI) && __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

namespace gradsync {

namespace {

constexpr std::size_t kTrialCount = 1 << 16;  // beyond what MPI sends eagerly
constexpr int kTrialTag = 76;

bool mpi_says_so() {
#if defined(MPIX_CUDA_AWARE_SUPPORT)
  return MPIX_Query_cuda_support() == 1;
#else
  return false;
#endif
}

/// Small whole numbers that differ from rank to rank: their sums are exact.
std::vector<float> pattern_of(int rank) {
  std::vector<float> values(kTrialCount);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>((rank + 1) * (1 + static_cast<int>(i % 61)));
  return values;
}

/// Float memory of a device with blocking copies, for the trial.
class TrialMemory {
 public:
  TrialMemory(Device& device, StreamHandle stream)
      : device_(device),
        stream_(stream),
        event_(device.make_event()),
        memory_(static_cast<float*>(device.make_memory(kTrialCount * sizeof(float)))) {}
  ~TrialMemory() {
    device_.free_memory(memory_);
    device_.free_event(event_);
  }
  TrialMemory(const TrialMemory&) = delete;
  TrialMemory& operator=(const TrialMemory&) = delete;

  float* get() { return memory_; }
  void put(const std::vector<float>& values) { copy(memory_, values.data()); }
  std::vector<float> values() {
    std::vector<float> host(kTrialCount);
    copy(host.data(), memory_);
    return host;
  }

 private:
  void copy(void* to, const void* from) {
    device_.copy(to, from, kTrialCount * sizeof(float), stream_);
    device_.record(event_, stream_);
    device_.wait_for(event_);
  }

  Device& device_;
  StreamHandle stream_;
  EventHandle event_;
  float* memory_;
};

bool on_all(const Session& session, bool mine) {
  int here = mine ? 1 : 0, everywhere = 0;
  MPI_Allreduce(&here, &everywhere, 1, MPI_INT, MPI_MIN, session.world());
  return everywhere == 1;
}

}  // namespace

void DirectTransport::all_reduce_sum(std::span<float> data, Waiting) {
  settle();
  mpi().all_reduce_sum(data, Waiting::kSpin);
}

void DirectTransport::all_reduce_mean(std::span<float> data, Waiting waiting) {
  all_reduce_sum(data, waiting);
  scale_(data.data(), static_cast<std::int64_t>(data.size()), 1.0f / static_cast<float>(size()),
         stream());
}

void DirectTransport::reduce_sum(std::span<float> data, int root) {
  settle();
  mpi().reduce_sum(data, root);
}

void DirectTransport::broadcast(std::span<std::byte> data, int root) {
  settle();
  mpi().broadcast(data, root);
}

void DirectTransport::gather(std::span<const float> one, std::span<float> all, int root) {
  settle();
  mpi().gather(one, all, root);
}

void DirectTransport::scatter(std::span<const float> all, std::span<float> one, int root) {
  settle();
  mpi().scatter(all, one, root);
}

bool device_memory_arrives(const Session& session, Device& device, StreamHandle stream) {
  const int rank = session.rank(), ranks = session.size();
  const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  const int count = static_cast<int>(kTrialCount);
  TrialMemory mine(device, stream), other(device, stream);
  mine.put(pattern_of(rank));
  other.put(std::vector<float>(kTrialCount, -1));
  MPI_Sendrecv(mine.get(), count, MPI_FLOAT, next, kTrialTag, other.get(), count, MPI_FLOAT,
               previous, kTrialTag, session.world(), MPI_STATUS_IGNORE);
  MPI_Allreduce(MPI_IN_PLACE, mine.get(), count, MPI_FLOAT, MPI_SUM, session.world());
  std::vector<float> sum = pattern_of(0);
  const int factors = ranks * (ranks + 1) / 2;
  for (float& value : sum)
    value *= static_cast<float>(factors);
  return on_all(session, other.values() == pattern_of(previous) && mine.values() == sum);
}

bool mpi_takes_device_memory(const Session& session, Device& device, StreamHandle stream) {
  return on_all(session, mpi_says_so()) && device_memory_arrives(session, device, stream);
}

}  // namespace gradsync
