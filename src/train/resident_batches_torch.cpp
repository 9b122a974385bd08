#include <algorithm>

#include "base/error.h"
#include "model/current_stream.h"
#include "train/resident_batches.h"

namespace gradsync {

namespace {

constexpr std::int64_t kCursorWords = sizeof(EpochCursor) / sizeof(std::int64_t);

/// From pageable memory, without waiting for what the device is doing.
void send(torch::Tensor& to, const torch::Tensor& from) {
  to.narrow(0, 0, from.numel()).copy_(from, /*non_blocking=*/true);
}

}  // namespace

ResidentBatches::ResidentBatches(std::shared_ptr<const ResidentData> data, ImageType type)
    : data_(std::move(data)),
      type_(type),
      cursor_(torch::zeros({kCursorWords}, torch::dtype(torch::kInt64).device(data_->device()))) {}

void ResidentBatches::begin(Loader::Indices indices, const LoaderOptions& how) {
  split_ = how.split;
  layout_ = how.layout;
  sizes_.clear();
  next_ = 0;
  std::vector<std::int64_t> order;
  for (std::int64_t step = 0; step < how.steps; ++step) {
    const std::vector<std::int64_t> batch = indices(step);
    sizes_.push_back(static_cast<std::int64_t>(batch.size()));
    order.insert(order.end(), batch.begin(), batch.end());
  }
  send_order(order, how.longest);
  send(cursor_, torch::tensor({static_cast<std::int64_t>(how.seed), how.epoch, std::int64_t{0},
                               std::int64_t{how.augment}}));
}

void ResidentBatches::send_order(const std::vector<std::int64_t>& order, std::int64_t longest) {
  const auto count = static_cast<std::int64_t>(order.size());
  if (!order_.defined() || order_.numel() < count)
    order_ = torch::empty({std::max(count, longest)},
                          torch::dtype(torch::kInt64).device(data_->device()));
  if (count > 0) send(order_, torch::tensor(order));
}

FeedBatch ResidentBatches::next() {
  if (next_ >= sizes_.size()) throw Error(ExitCode::kInternal, "a batch after the epoch's last");
  const std::int64_t samples = sizes_[next_++];
  FeedBatch batch;
  batch.images = torch::empty(
      {samples, 3, kImageSide, kImageSide},
      torch::dtype(scalar_type(type_)).device(data_->device()),
      layout_ == Layout::kNhwc ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
  batch.labels = torch::empty({samples}, torch::dtype(torch::kInt64).device(data_->device()));
  make({batch.images.data_ptr(), batch.labels.data_ptr<std::int64_t>(), samples, type_,
        layout_ == Layout::kNhwc});
  return batch;
}

void ResidentBatches::make(const BatchMemory& memory) {
  auto* cursor = reinterpret_cast<EpochCursor*>(cursor_.data_ptr<std::int64_t>());
  const std::int64_t* order = order_.const_data_ptr<std::int64_t>();
  if (data_->device().is_cuda())
    launch_batch(data_->images(split_), order, cursor, memory, current_stream(data_->device()));
  else
    batch_on_host(data_->images(split_), order, *cursor, memory);
}

}  // namespace gradsync
