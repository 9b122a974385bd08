#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace gradsync {

/// How the calling thread waits for a collective.
enum class Waiting {
  kSpin,   ///< as MPI does: lowest latency, takes a core
  kSleep,  ///< polls with short sleeps: for a thread beside compute that needs every core
};

/// Moves data between the ranks; knows nothing of gradients, modes or timing (see Exchange).
/// One implementation a library. All calls are collective. Data lies in host memory and the calls
/// block until this rank's result is there; or it lies on a device, whose stream has the result
/// when it comes by. Counts come from the spans, never from the caller.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Sum over ranks, in place, bit-equal on all ranks.
  virtual void all_reduce_sum(std::span<float> data, Waiting waiting) = 0;
  /// The mean over ranks, in place, bit-equal on all ranks.
  virtual void all_reduce_mean(std::span<float> data, Waiting waiting) = 0;
  /// The sum in bfloat16 or IEEE half, stored as their 16 bits, each addition rounded to nearest.
  virtual void all_reduce_sum_bf16(std::span<std::uint16_t> data, Waiting waiting) = 0;
  virtual void all_reduce_sum_fp16(std::span<std::uint16_t> data, Waiting waiting) = 0;
  /// Sum on `root`; the other ranks' data is left as it was.
  virtual void reduce_sum(std::span<float> data, int root) = 0;
  virtual void broadcast(std::span<std::byte> data, int root) = 0;
  /// `all` is used on root only and holds size() × one.size() values in order of rank.
  virtual void gather(std::span<const float> one, std::span<float> all, int root) = 0;
  virtual void scatter(std::span<const float> all, std::span<float> one, int root) = 0;

  /// Whether calls only enqueue what a device will do, and return at once.
  virtual bool enqueues() const { return false; }
  /// Why what was enqueued can never end (a rank is gone); empty while all is well.
  virtual std::string lost() { return {}; }
  /// Ends what is under way without the other ranks, before the job is aborted. From any thread.
  virtual void abandon() noexcept {}
};

}  // namespace gradsync
