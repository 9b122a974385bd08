#pragma once

#include "train/batch_source.h"

namespace gradsync {

/// Batches made on the device from resident data. `begin` sends the epoch's order there; `next`
/// only launches a kernel on the device's current stream (on the CPU it fills the batch).
///
/// The order and the cursor keep their places in memory over all epochs of at most
/// LoaderOptions::longest images, so that a captured step that makes its own batch can be replayed
/// in later epochs.
class ResidentBatches : public BatchSource {
 public:
  ResidentBatches(std::shared_ptr<const ResidentData> data, ImageType type);

  void begin(Loader::Indices indices, const LoaderOptions& how) override;
  FeedBatch next() override;
  void skip(std::int64_t batches) override { next_ += static_cast<std::size_t>(batches); }
  const void* place() const override { return order_.const_data_ptr(); }

 private:
  void send_order(const std::vector<std::int64_t>& order, std::int64_t longest);
  void make(const BatchMemory& memory);

  std::shared_ptr<const ResidentData> data_;
  ImageType type_;
  Split split_ = Split::kTrain;
  Layout layout_ = Layout::kNchw;
  torch::Tensor order_, cursor_;     ///< int64; the cursor is an EpochCursor
  std::vector<std::int64_t> sizes_;  ///< of the epoch's batches
  std::size_t next_ = 0;
};

}  // namespace gradsync
