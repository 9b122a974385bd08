#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "comm/comm_thread.h"
#include "sync/sync_mode.h"
#include "timing/clock.h"

namespace gradsync {

namespace {

constexpr int kRoot = 0;

/// A collective of c10d that our communication thread runs.
class ThreadWork : public c10d::Work {
 public:
  ThreadWork(int rank, c10d::OpType type)
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

  void run(std::vector<at::Tensor>& tensors, const std::function<void()>& body) {
    try {
      body();
      future_->markCompleted(c10::IValue(tensors));
    } catch (...) {
      future_->setError(std::current_exception());
    }
  }

 private:
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

/// What c10d::Reducer needs of a backend, over our exchange.
class ExchangeBackend : public c10d::Backend {
 public:
  explicit ExchangeBackend(Exchange& exchange)
      : Backend(exchange.rank(), exchange.size()), exchange_(exchange) {}

  const std::string getBackendName() const override { return "gradsync"; }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    TORCH_CHECK(tensors.size() == 1 && options.reduceOp == c10d::ReduceOp::SUM,
                "gradsync's c10d backend sums one tensor at a time");
    return submit(c10d::OpType::ALLREDUCE, tensors, [this](at::Tensor& tensor, double ready_s) {
      exchange_.all_reduce_sum({tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())},
                               Traffic::kGradients, ready_s);
    });
  }

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    return submit(c10d::OpType::BROADCAST, tensors,
                  [this, root = static_cast<int>(options.rootRank)](at::Tensor& tensor, double) {
                    exchange_.broadcast(
                        std::span(static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()),
                        root, Traffic::kControl);
                  });
  }

 private:
  template <typename Body>
  c10::intrusive_ptr<c10d::Work> submit(c10d::OpType type, std::vector<at::Tensor>& tensors,
                                        Body body) {
    auto work = c10::make_intrusive<ThreadWork>(getRank(), type);
    thread_.submit([work, tensors, body, ready_s = now_s()]() mutable {
      work->run(tensors, [&] { body(tensors[0], ready_s); });
    });
    return work;
  }

  Exchange& exchange_;
  CommThread thread_;
};

/// LibTorch's own engine of DistributedDataParallel, c10d::Reducer, driven as its Python front end
/// drives it: the peer, in the same binary, over the same transport.
class C10d : public SyncMode {
 public:
  C10d(Exchange& exchange, const SyncSettings& settings)
      : exchange_(exchange), settings_(settings) {
    exchange_.set_waiting(Waiting::kSleep);
  }

  void attach(Replica& replica) override {
    auto group = c10::make_intrusive<c10d::ProcessGroup>(exchange_.rank(), exchange_.size());
    group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM,
                      c10::make_intrusive<ExchangeBackend>(exchange_));
    group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
    std::unordered_map<std::size_t, std::string> names;
    for (std::size_t i = 0; i < replica.names.size(); ++i)
      names[i] = replica.names[i];
    const std::vector<bool> sparse(replica.parameters.size(), false);
    auto cut = std::get<0>(c10d::compute_bucket_assignment_by_size(
        replica.parameters,
        {static_cast<std::size_t>(settings_.first_bucket_bytes),
         static_cast<std::size_t>(settings_.bucket_cap_bytes)},
        sparse));
    std::reverse(cut.begin(), cut.end());
    reducer_ = std::make_unique<c10d::Reducer>(
        replica.parameters, std::move(cut), group, sparse, settings_.bucket_cap_bytes,
        /*find_unused_parameters=*/false, /*gradient_as_bucket_view=*/true, names,
        settings_.first_bucket_bytes,
        /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
        std::vector<std::int64_t>{});
  }

  torch::Tensor begin_pass(const PassInput& input) override {
    if (!input.last) return input.images;
    // Python's DDP does this before each forward pass; without it the bucket cap has no effect.
    reducer_->rebuild_buckets();
    reducer_->prepare_for_forward();
    return input.images;
  }

  void before_backward(const torch::Tensor&, bool last) override {
    if (last) reducer_->prepare_for_backward({});
  }

  bool waits_in_backward() const override { return true; }

  void synchronize() override {}  // the Reducer waits for its buckets when the backward pass ends

 private:
  Exchange& exchange_;
  SyncSettings settings_;
  std::unique_ptr<c10d::Reducer> reducer_;
};

}  // namespace

std::unique_ptr<SyncMode> make_c10d(Exchange& exchange, const SyncSettings& settings) {
  return std::make_unique<C10d>(exchange, settings);
}

}  // namespace gradsync
