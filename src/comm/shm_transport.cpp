#include "comm/shm_transport.h"

namespace gradsync {

void ShmTransport::all_reduce_sum(std::span<float> data, Waiting waiting) {
  memory_.reducer().all_reduce(data, 1, waiting);
}

void ShmTransport::all_reduce_mean(std::span<float> data, Waiting waiting) {
  memory_.reducer().all_reduce(data, 1.0 / size(), waiting);
}

void ShmTransport::all_reduce_sum_bf16(std::span<std::uint16_t> data, Waiting waiting) {
  memory_.reducer().all_reduce(as_values<Bfloat16>(data), 1, waiting);
}

void ShmTransport::all_reduce_sum_fp16(std::span<std::uint16_t> data, Waiting waiting) {
  memory_.reducer().all_reduce(as_values<Float16>(data), 1, waiting);
}

}  // namespace gradsync
