#include "transport/shm_transport.h"

namespace gradsync {

std::uint32_t ShmTransport::post(std::span<float> data) {
  return memory_.reducer().post(data, 1.0 / size(), /*timed=*/true);
}

Progress ShmTransport::progress() {
  SharedAllReduce& reducer = memory_.reducer();
  const std::uint32_t own = reducer.progress();
  return {own, reducer.finished()};
}

void ShmTransport::finish(std::uint32_t number, Waiting waiting) {
  memory_.reducer().finish(number, waiting);
}

PostedTimes ShmTransport::times(std::uint32_t number) {
  return memory_.reducer().times(number);
}

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
