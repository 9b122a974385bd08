// SPDX-License-Identifier: BSD-3-Clause
#include <exception>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "base/error.h"
#include "sync/flat_gradients.h"
#include "sync/sync_mode.h"

#if GRADSYNC_WITH_CUDA
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#endif

namespace gradsync {

namespace {

#if GRADSYNC_WITH_CUDA

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
  c10::intrusive_ptr<c10d::TCPStore> store;
  session.together([&] {
    if (!session.root()) return;
    store = c10::make_intrusive<c10d::TCPStore>(host.c_str(), options);
    options.port = store->getPort();
  });
  session.broadcast(options.port);
  session.broadcast(host);
  session.together([&] {
    if (!session.root()) store = c10::make_intrusive<c10d::TCPStore>(host.c_str(), options);
  });
  return store;
}

/// LibTorch's own NCCL backend, each all-reduce of which passes through the exchange: compared,
/// watched, counted, and timed from when its data was ready and the one before it was over. The
/// ranks find each other by a store on rank 0's host. Making it is collective.
class TimedNccl : public c10d::Backend {
 public:
  TimedNccl(Exchange& exchange, const at::Device& device)
      : Backend(exchange.session().rank(), exchange.session().size()),
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
    const auto enqueue = [&] {
      // The group has a stream of its own, which begins where the current one is. Ours follows it,
      // so that marks cover it.
      const c10::cuda::CUDAStreamGuard on_ours(communication_);
      work = nccl_->allreduce(tensors, options);
      work->synchronize();
    };
    exchange_.start({.call = Collective::all_reduce(data, Scale::kSum), .enqueue = enqueue},
                    exchange_.now());
    TORCH_CHECK(work, "the collective was skipped");
    return work;
  }

  /// The order of the buckets, once.
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    auto work = nccl_->broadcast(tensors, options);
    work->synchronize();
    // Its caller reads it on the host, and would wait there unwatched.
    exchange_.await(exchange_.now().mark);
    return work;
  }

 private:
  Exchange& exchange_;
  c10::cuda::CUDAStream communication_;
  c10::intrusive_ptr<c10d::ProcessGroupNCCL> nccl_;
};

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(Exchange& exchange, const at::Device& device) {
  return c10::make_intrusive<TimedNccl>(exchange, device);
}

#else

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(Exchange&, const at::Device&) {
  throw Error(ExitCode::kEnvironment, "this build is without NCCL", "give --transport mpi");
}

#endif

/// A collective of c10d that the exchange moves.
class StartedWork : public c10d::Work {
 public:
  StartedWork(int rank, c10d::OpType type)
      : Work(rank, type),
        future_(c10::make_intrusive<c10::ivalue::Future>(
            c10::ListType::create(c10::TensorType::get()))) {}

  bool wait(std::chrono::milliseconds) override {
    future_->waitAndThrow();
    return true;
  }
  bool isCompleted() override { return future_->completed(); }
  bool isSuccess() const override { return future_->completed() && !future_->hasError(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

  void end(const std::vector<at::Tensor>& tensors, const std::exception_ptr& failure) {
    if (failure)
      future_->setError(failure);
    else
      future_->markCompleted(c10::IValue(tensors));
  }

 private:
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

/// What c10d::Reducer needs of a backend, over our exchange.
class ExchangeBackend : public c10d::Backend {
 public:
  explicit ExchangeBackend(Exchange& exchange)
      : Backend(exchange.session().rank(), exchange.session().size()), exchange_(exchange) {}

  const std::string getBackendName() const override { return "gradsync"; }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    TORCH_CHECK(tensors.size() == 1 && options.reduceOp == c10d::ReduceOp::SUM,
                "gradsync's c10d backend sums one tensor at a time");
    const std::span<float> data(tensors[0].data_ptr<float>(),
                                static_cast<std::size_t>(tensors[0].numel()));
    return start(c10d::OpType::ALLREDUCE, tensors, Collective::all_reduce(data, Scale::kSum),
                 Traffic::kGradients);
  }

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    const std::span data(static_cast<std::byte*>(tensors[0].data_ptr()), tensors[0].nbytes());
    return start(c10d::OpType::BROADCAST, tensors,
                 Collective::broadcast(data, static_cast<int>(options.rootRank)),
                 Traffic::kControl);
  }

 private:
  c10::intrusive_ptr<c10d::Work> start(c10d::OpType type, const std::vector<at::Tensor>& tensors,
                                       const Collective& call, Traffic category) {
    auto work = c10::make_intrusive<StartedWork>(getRank(), type);
    Message message{call, category};
    message.done = [work, tensors](const std::exception_ptr& failure) {
      work->end(tensors, failure);
    };
    exchange_.start(std::move(message), exchange_.now());
    return work;
  }

  Exchange& exchange_;
};

using Cut = std::vector<std::vector<std::size_t>>;  ///< parameters of each bucket

/// A Reducer that can take up where another one of the same parameters was.
class ResumableReducer : public c10d::Reducer {
 public:
  using Reducer::Reducer;

  bool rebuilt() const { return has_rebuilt_bucket_; }
  /// The order in which gradients came, while the buckets wait to be cut by it.
  const std::vector<std::int64_t>& observed() const { return rebuilt_param_indices_; }
  Cut cut() const {
    Cut cut;
    for (const Bucket& bucket : buckets_)
      cut.push_back(bucket.variable_indices);
    return cut;
  }

  void set_rebuilt() { has_rebuilt_bucket_ = true; }
  void set_observed(const std::vector<std::int64_t>& order) {
    rebuilt_param_indices_ = order;
    for (const std::int64_t parameter : order)
      rebuilt_params_.push_back(params_[static_cast<std::size_t>(parameter)]);
  }
};

/// Releases of LibTorch add parameters at the end of the constructor: 2.7 has none of these, 2.11
/// all. Their defaults in Python are given.
template <typename... Args>
std::unique_ptr<ResumableReducer> reducer_of_any_release(Args&&... args) {
  using Caps = std::vector<std::int64_t>;
  if constexpr (std::is_constructible_v<ResumableReducer, Args..., bool, bool, Caps>)
    return std::make_unique<ResumableReducer>(
        std::forward<Args>(args)..., /*skip_all_reduce_unused_params=*/false,
        /*use_python_reducer=*/false, /*bucket_bytes_cap_list=*/Caps());
  else if constexpr (std::is_constructible_v<ResumableReducer, Args..., bool, bool>)
    return std::make_unique<ResumableReducer>(std::forward<Args>(args)..., false, false);
  else if constexpr (std::is_constructible_v<ResumableReducer, Args..., bool>)
    return std::make_unique<ResumableReducer>(std::forward<Args>(args)..., false);
  else
    return std::make_unique<ResumableReducer>(std::forward<Args>(args)...);
}

/// A cut as numbers: of each bucket how many parameters, then which.
std::vector<std::int64_t> numbers_of(const Cut& cut) {
  std::vector<std::int64_t> numbers;
  for (const auto& bucket : cut) {
    numbers.push_back(static_cast<std::int64_t>(bucket.size()));
    numbers.insert(numbers.end(), bucket.begin(), bucket.end());
  }
  return numbers;
}

/// The inverse, for `count` parameters. Throws Error kBadData.
Cut cut_of(std::span<const std::int64_t> numbers, std::size_t count) {
  Cut cut;
  std::vector<std::int64_t> order;
  while (!numbers.empty()) {
    const std::int64_t size = numbers.front();
    if (size < 1 || size >= static_cast<std::int64_t>(numbers.size())) break;
    const auto bucket = numbers.subspan(1, static_cast<std::size_t>(size));
    cut.emplace_back(bucket.begin(), bucket.end());
    order.insert(order.end(), bucket.begin(), bucket.end());
    numbers = numbers.subspan(1 + bucket.size());
  }
  checked_order(order, numbers.empty() ? count : count + 1);
  return cut;
}

/// LibTorch's own engine of DistributedDataParallel, c10d::Reducer, driven as its Python front end
/// drives it: the peer, in the same binary, over the same transport; over NCCL with its own process
/// group.
class C10d : public SyncMode {
 public:
  C10d(Exchange& exchange, const SyncSettings& settings)
      : exchange_(exchange), settings_(settings) {}

  void attach(Replica& replica) override {
    replica_ = &replica;
    group_ = c10::make_intrusive<c10d::ProcessGroup>(exchange_.session().rank(),
                                                     exchange_.session().size());
    c10::intrusive_ptr<c10d::Backend> backend;
    if (exchange_.enqueues())
      backend = make_nccl_backend(exchange_, replica.parameters[0].device());
    else
      backend = c10::make_intrusive<ExchangeBackend>(exchange_);
    const auto custom = c10d::ProcessGroup::BackendType::CUSTOM;
    group_->setBackend(replica.parameters[0].device().type(), custom, backend);
    group_->setDefaultBackend(custom);
    auto cut = std::get<0>(c10d::compute_bucket_assignment_by_size(
        replica.parameters,
        {static_cast<std::size_t>(settings_.first_bucket_bytes),
         static_cast<std::size_t>(settings_.bucket_cap_bytes)},
        std::vector<bool>(replica.parameters.size(), false)));
    std::reverse(cut.begin(), cut.end());
    make_reducer(std::move(cut));
  }

  std::vector<std::int64_t> state() const override {
    std::vector<std::int64_t> state = {reducer_->rebuilt() ? kRebuilt : kObserved};
    const auto rest = reducer_->rebuilt() ? numbers_of(reducer_->cut()) : reducer_->observed();
    if (rest.empty()) return {};
    state.insert(state.end(), rest.begin(), rest.end());
    return state;
  }

  void restore(const std::vector<std::int64_t>& state) override {
    if (state.empty()) return;
    const auto rest = std::span(state).subspan(1);
    // A Reducer that has run has given every parameter a gradient.
    for (torch::Tensor& parameter : replica_->parameters)
      parameter.mutable_grad() = torch::zeros_like(parameter.detach());
    if (state[0] == kRebuilt) {
      make_reducer(cut_of(rest, replica_->parameters.size()));
      reducer_->set_rebuilt();
    } else {
      Cut cut = reducer_->cut();
      checked_order(rest, replica_->parameters.size());
      make_reducer(std::move(cut));
      reducer_->set_observed({rest.begin(), rest.end()});
    }
  }

  void before_forward(bool last) override {
    if (!last) return;
    // Python's DDP does this before each forward pass; without it the bucket cap has no effect.
    reducer_->rebuild_buckets();
    reducer_->prepare_for_forward();
  }

  void before_backward(const torch::Tensor&, bool last) override {
    if (last) reducer_->prepare_for_backward({});
  }

  bool waits_in_backward() const override { return true; }

  /// On the host the Reducer waits for its buckets when the backward pass ends.
  void synchronize() override { exchange_.finish(); }

 private:
  static constexpr std::int64_t kObserved = 1, kRebuilt = 2;

  void make_reducer(Cut cut) {
    reducer_.reset();
    std::unordered_map<std::size_t, std::string> names;
    for (std::size_t i = 0; i < replica_->names.size(); ++i)
      names[i] = replica_->names[i];
    reducer_ = reducer_of_any_release(
        replica_->parameters, std::move(cut), group_,
        std::vector<bool>(replica_->parameters.size(), false), settings_.bucket_cap_bytes,
        /*find_unused_parameters=*/false, /*gradient_as_bucket_view=*/true, names,
        settings_.first_bucket_bytes);
  }

  Exchange& exchange_;
  SyncSettings settings_;
  Replica* replica_ = nullptr;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::unique_ptr<ResumableReducer> reducer_;
};

}  // namespace

std::unique_ptr<SyncMode> make_c10d(Exchange& exchange, const SyncSettings& settings) {
  return std::make_unique<C10d>(exchange, settings);
}

}  // namespace gradsync
