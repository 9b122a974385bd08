#include <exception>

#include "base/error.h"
#include "sync/c10d_nccl.h"

#if GRADSYNC_WITH_CUDA
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#endif

namespace gradsync {

#if GRADSYNC_WITH_CUDA

namespace {

/// A hang is the watchdog's to end, not the process group's.
constexpr auto kNeverByItself = std::chrono::hours(24 * 8);

/// Rank 0 serves at a port the system chooses; the others receive both by MPI. On one host the name
/// of that host need not be known to it.
c10::intrusive_ptr<c10d::Store> make_store(const Session& session) {
  c10d::TCPStoreOptions options;
  options.isServer = session.root();
  options.numWorkers = static_cast<std::size_t>(session.size());
  options.waitWorkers = false;
  options.port = 0;
  std::string host = session.local_size() == session.size() ? "127.0.0.1" : session.host();
  host.resize(MPI_MAX_PROCESSOR_NAME);
  c10::intrusive_ptr<c10d::TCPStore> store;
  session.together([&] {
    if (!session.root()) return;
    store = c10::make_intrusive<c10d::TCPStore>(host.c_str(), options);
    options.port = store->getPort();
  });
  {
    const CollectiveScope watched(session.watchdog(), CollectiveKind::kBroadcast);
    MPI_Bcast(&options.port, 1, MPI_UINT16_T, kRoot, session.world());
    MPI_Bcast(host.data(), static_cast<int>(host.size()), MPI_CHAR, kRoot, session.world());
  }
  session.together([&] {
    if (!session.root()) store = c10::make_intrusive<c10d::TCPStore>(host.c_str(), options);
  });
  return store;
}

class TimedNccl : public c10d::Backend {
 public:
  TimedNccl(Exchange& exchange, const at::Device& device)
      : Backend(exchange.rank(), exchange.size()),
        exchange_(exchange),
        communication_(c10::cuda::getStreamFromExternal(
            static_cast<cudaStream_t>(exchange.lane()->communication), device.index())) {
    const auto options = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
    options->timeout = kNeverByItself;
    nccl_ = c10::make_intrusive<c10d::ProcessGroupNCCL>(make_store(exchange.session()), getRank(),
                                                        getSize(), options);
  }

  TimedNccl(const TimedNccl&) = delete;
  TimedNccl& operator=(const TimedNccl&) = delete;

  ~TimedNccl() override {
    if (std::uncaught_exceptions() > 0)
      nccl_->abort();
    else
      nccl_->shutdown();
  }

  const std::string getBackendName() const override { return "gradsync-nccl"; }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    TORCH_CHECK(tensors.size() == 1 && options.reduceOp == c10d::ReduceOp::SUM,
                "gradsync's c10d backend sums one tensor at a time");
    c10::intrusive_ptr<c10d::Work> work;
    const std::span<float> data(tensors[0].data_ptr<float>(),
                                static_cast<std::size_t>(tensors[0].numel()));
    exchange_.all_reduce_by(data, Traffic::kGradients, exchange_.now(), [&] {
      // The group has a stream of its own, which begins where the current one is. Ours follows it,
      // so that marks cover it.
      const c10::cuda::CUDAStreamGuard on_ours(communication_);
      work = nccl_->allreduce(tensors, options);
      work->synchronize();
    });
    TORCH_CHECK(work, "the collective was skipped");
    return work;
  }

  /// The order of the buckets, once.
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    return nccl_->broadcast(tensors, options);
  }

 private:
  Exchange& exchange_;
  c10::cuda::CUDAStream communication_;
  c10::intrusive_ptr<c10d::ProcessGroupNCCL> nccl_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(Exchange& exchange, const at::Device& device) {
  return c10::make_intrusive<TimedNccl>(exchange, device);
}

#else

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(Exchange&, const at::Device&) {
  throw Error(ExitCode::kEnvironment, "this build is without NCCL", "give --transport mpi");
}

#endif

}  // namespace gradsync
