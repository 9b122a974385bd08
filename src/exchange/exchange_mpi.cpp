// SPDX-License-Identifier: BSD-3-Clause
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "base/error.h"
#include "base/numbers.h"
#include "base/parse.h"
#include "comm/session.h"
#include "exchange/exchange.h"
#include "machine/host.h"
#include "machine/kernels.h"
#include "machine/lane.h"
#include "stats/clock.h"
#include "transport/shared_all_reduce.h"

namespace gradsync {

namespace {

constexpr std::size_t kExpectedPosted = 256;
/// Between two looks at an event that has not happened.
constexpr auto kLookPause = std::chrono::microseconds(20);

HalfType half_type(ValueType type) {
  return type == ValueType::kBfloat16 ? HalfType::kBfloat16 : HalfType::kFloat16;
}

std::span<float> floats_of(std::span<std::byte> bytes) {
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

/// What ranks compare: a payload is that of one rank.
CollectiveCall call_of(const Collective& call) {
  const bool sums = call.kind == CollectiveKind::kAllReduce ||
                    call.kind == CollectiveKind::kReduce ||
                    call.kind == CollectiveKind::kReduceScatter;
  const bool gathers =
      call.kind == CollectiveKind::kGather || call.kind == CollectiveKind::kAllGather;
  const std::size_t bytes = gathers ? call.send.size() : call.receive.size();
  return call_of(call.kind, call.narrows() ? call.wire : call.type,
                 sums ? ReduceOp::kSum : ReduceOp::kNone,
                 bytes / static_cast<std::size_t>(value_bytes(call.type)), call.root);
}

/// The float32 values of this rank that travel from it, for the GradientCheck.
std::span<const float> gradients_of(const Message& message) {
  if (message.category != Traffic::kGradients || message.call.type != ValueType::kFloat32)
    return {};
  const Collective& call = message.call;
  if (call.kind == CollectiveKind::kGather || call.kind == CollectiveKind::kReduceScatter)
    return {reinterpret_cast<const float*>(call.send.data()), call.send.size() / sizeof(float)};
  if (call.kind == CollectiveKind::kAllReduce || call.kind == CollectiveKind::kReduce)
    return floats_of(call.receive);
  return {};
}

}  // namespace

/// The thread that moves messages in their order: the only one that communicates while any is under
/// way.
class Exchange::Thread {
 public:
  explicit Thread(Exchange& exchange)
      : queue_(std::make_shared<Queue>()),
        thread_([&exchange, queue = queue_] { work(exchange, *queue); }) {}

  ~Thread() {
    bool idle = false;
    {
      const std::lock_guard lock(queue_->mutex);
      queue_->stopping = true;
      idle = queue_->idle();
    }
    queue_->changed.notify_all();
    if (!idle && std::uncaught_exceptions() > 0)
      thread_.detach();
    else
      thread_.join();
  }
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

  std::uint64_t submit(Message message, Moment ready) {
    std::uint64_t number = 0;
    {
      const std::lock_guard lock(queue_->mutex);
      queue_->add({std::move(message), ready});
      number = queue_->submitted;
    }
    queue_->changed.notify_all();
    return number;
  }

  bool idle() {
    const std::lock_guard lock(queue_->mutex);
    return queue_->idle();
  }

  /// Returns when the message of this number, and all before it, have traveled, or one has failed,
  /// whose exception it rethrows; kAllMessages: when all have. The end, on the device, of the last
  /// one that has.
  Mark wait_for(std::uint64_t number) {
    std::unique_lock lock(queue_->mutex);
    queue_->changed.wait(lock, [&] {
      if (number == kAllMessages) return queue_->idle();
      return queue_->done >= number || queue_->failure != nullptr;
    });
    if (queue_->failure) std::rethrow_exception(std::exchange(queue_->failure, nullptr));
    return queue_->end;
  }

 private:
  struct Job {
    Message message;
    Moment ready;
  };

  /// Shared with the thread, so that a detached one never touches freed memory. Jobs are a ring
  /// that keeps its memory.
  struct Queue {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<Job> jobs = std::vector<Job>(kExpectedPosted);
    std::uint64_t submitted = 0, taken = 0, done = 0;
    Mark end;  ///< of the last message that is done
    bool stopping = false;
    std::exception_ptr failure;

    bool idle() const { return done == submitted; }
    void add(Job job) {
      if (submitted - taken == jobs.size()) grow();
      jobs[submitted++ % jobs.size()] = std::move(job);
    }
    Job take() { return std::move(jobs[taken++ % jobs.size()]); }
    void grow() {
      std::vector<Job> more(2 * jobs.size());
      for (std::uint64_t number = taken; number < submitted; ++number)
        more[number % more.size()] = std::move(jobs[number % jobs.size()]);
      jobs = std::move(more);
    }
  };

  static void work(Exchange& exchange, Queue& queue) {
    std::unique_lock lock(queue.mutex);
    for (;;) {
      queue.changed.wait(lock, [&] { return queue.stopping || queue.taken < queue.submitted; });
      if (queue.taken == queue.submitted) return;
      Job job = queue.take();
      lock.unlock();
      const std::exception_ptr failure = carry_out(exchange, std::move(job));
      lock.lock();
      if (failure && !queue.failure) queue.failure = failure;
      ++queue.done;
      queue.end = exchange.last_;
      queue.changed.notify_all();
    }
  }

  /// Returns what was thrown, unless `done` gets it. The job's memory goes with it.
  // NOLINTNEXTLINE(performance-unnecessary-value-param)
  static std::exception_ptr carry_out(Exchange& exchange, Job job) {
    std::exception_ptr failure;
    try {
      exchange.move(job.message, job.ready, Waiting::kSleep);
    } catch (...) {
      failure = std::current_exception();
    }
    if (!job.message.done) return failure;
    job.message.done(failure);
    return {};
  }

  std::shared_ptr<Queue> queue_;
  std::thread thread_;
};

Exchange::Exchange(const Session& session, Transport& transport, VerifyLevel verify,
                   DeviceLane* lane)
    : log_(session, verify), transport_(transport), lane_(lane) {
  // How many messages wait at once depends on the peers' pace: no step is to be the first to grow.
  posted_.reserve(kExpectedPosted);
  if (lane_)
    log_.before_comparing([this] {
      if (lane_->ring.in_use(last_)) await_device(lane_->ring, last_, transport_, this->session());
    });
}

Exchange::~Exchange() {
  thread_.reset();
  if (!device_scratch_.empty()) lane_->device.free_memory(device_scratch_.data());
}

Moment Exchange::now() {
  if (lane_) return {kNotMeasured, lane_->ring.mark(lane_->compute)};
  return {now_s(), {}};
}

std::shared_ptr<std::byte> Exchange::allocate(std::size_t bytes) {
  const CollectiveScope watched(session().watchdog(), CollectiveKind::kAllReduce);
  auto memory = transport_.allocate(bytes);
  if (!memory && transport_.posted() && session().root() && !std::exchange(warned_, true))
    print_warning("gradsync-train",
                  fmt::format("/dev/shm of {} has no room for {} a rank: allreduces pass through "
                              "a small part of it, at about half the speed, other collectives "
                              "through MPI; {}",
                              session().host(), format_bytes(static_cast<std::int64_t>(bytes)),
                              kSharedMemoryFix));
  return memory;
}

// The thread is made now: it is not to inherit what the compute thread sets for itself later.
bool Exchange::set_overlaps(bool overlaps) {
  if (overlaps && !transport_.enqueues()) thread();
  return std::exchange(overlaps_, overlaps);
}

Exchange::Thread& Exchange::thread() {
  if (!thread_) thread_ = std::make_unique<Thread>(*this);
  return *thread_;
}

void Exchange::run(const Collective& call, Traffic category) {
  if (thread_ && !thread_->idle())
    return void(thread_->wait_for(thread_->submit({call, category}, Moment())));
  const bool sleeps = overlaps_ && transport_.posted() == nullptr;
  move({call, category}, Moment(), sleeps ? Waiting::kSleep : Waiting::kSpin);
}

std::uint64_t Exchange::start(Message message, Moment ready) {
  // Nothing travels of a parameter without values, on all ranks.
  if (message.call.send.empty() && message.call.receive.empty() && !message.enqueue &&
      !message.done)
    return 0;
  if (const std::span<float> data = postable(message); !data.empty()) {
    post(message, data, ready);
    return kPosted | posts_;
  }
  if (!transport_.enqueues()) return thread().submit(std::move(message), ready);
  move(message, ready, Waiting::kSleep);
  enqueued_.push_back(last_);
  return finished_ + enqueued_.size();
}

void Exchange::finish(std::uint64_t number) {
  if (number != kAllMessages) {
    if ((number & kPosted) != 0) return finish_posted(number);
    if (transport_.enqueues()) return join(number);
    // What the thread moved last ends with a copy to the device, which nobody has waited for.
    return join(thread().wait_for(number));
  }
  finish_posted(kAllMessages);
  if (thread_) thread_->wait_for(kAllMessages);
  join(last_);
  finished_ += enqueued_.size();
  enqueued_.clear();
}

/// From now on the compute stream waits for this message, and those enqueued before it.
void Exchange::join(std::uint64_t number) {
  if (number > finished_) join(enqueued_[number - finished_ - 1]);
}

/// From now on the compute stream waits for every collective up to the one that ends there.
void Exchange::join(Mark end) {
  if (lane_ && lane_->ring.in_use(end)) lane_->ring.wait(lane_->compute, end);
}

void Exchange::move(const Message& message, Moment ready, Waiting waiting) {
  if (lane_) lane_->device.use_in_this_thread();
  log_.begin(call_of(message.call), message.log ? *message.log : *log_.current(),
             [&](const CollectiveCall& named) {
               log_.enter_in_ledger(named, message.category);
               if (lane_)
                 enqueue(named, message, ready, waiting);
               else
                 run_here(named, message, ready, waiting);
             });
}

void Exchange::run_here(const CollectiveCall& call, const Message& message, Moment ready,
                        Waiting waiting) {
  const double start_s = log_.timing() ? now_s() : 0;
  const double convert_s = call_transport(message, waiting);
  if (!log_.timing()) return;
  const double end_s = now_s();
  IterationLog& iteration_log = message.log ? *message.log : *log_.current();
  iteration_log.records.push_back({call.kind, bytes_of(call), call.root,
                                   ready.known() ? ready.host_s : start_s, start_s, end_s});
  if (message.call.narrows()) iteration_log.records.back().convert_s = convert_s;
  log_.count(call, message.category, iteration_log);
}

void Exchange::enqueue(const CollectiveCall& call, const Message& message, Moment ready,
                       Waiting waiting) {
  const ProfilerRange range(lane_, collective_name(call.kind), bytes_of(call));
  EventRing& ring = lane_->ring;
  const StreamHandle stream = lane_->communication;
  const bool overlapped = ready.known();
  const Mark begin = overlapped ? ready.mark : now().mark;
  ring.wait(stream, begin);
  if (const auto gradients = gradients_of(message); gradient_check_ && !gradients.empty())
    gradient_check_(gradients, stream);
  const Mark start = log_.timing() ? ring.mark(stream) : Mark();
  call_transport(message, waiting);
  last_ = ring.mark(stream);
  if (!overlapped) join(last_);
  if (!log_.timing()) return;
  IterationLog& iteration_log = message.log ? *message.log : *log_.current();
  iteration_log.records.push_back({call.kind, bytes_of(call), call.root, kNotMeasured, kNotMeasured,
                                   kNotMeasured, begin, start, last_});
  log_.count(call, message.category, iteration_log);
}

/// Returns the seconds spent on turning values.
double Exchange::call_transport(const Message& message, Waiting waiting) {
  if (message.enqueue) {
    message.enqueue();
    return 0;
  }
  Collective call = message.call;
  call.waiting = waiting;
  if (transport_.size() == 1) call.wire = ValueType::kFloat32;  // nothing travels
  if (call.narrows() && !transport_.supports(call)) return run_in_16_bits(call);
  return transport_.run(call);
}

double Exchange::run_in_16_bits(Collective call) {
  const std::span<float> data = floats_of(call.receive);
  const std::span<std::uint16_t> wire = scratch(data.size());
  const double begin_s = now_s();
  // Scaled before it travels: half's range ends at 65,504, and a sum of many ranks may pass it.
  const float factor =
      call.scale == Scale::kAverage ? 1.0f / static_cast<float>(transport_.size()) : 1;
  pack(data, wire, factor, call.wire);
  const double packed_s = now_s();
  transport_.run(
      {.type = call.wire, .receive = std::as_writable_bytes(wire), .waiting = call.waiting});
  const double summed_s = now_s();
  unpack(wire, data, call.wire);
  return packed_s - begin_s + now_s() - summed_s;
}

/// Memory for so many values, where the data lies; grows and stays.
std::span<std::uint16_t> Exchange::scratch(std::size_t count) {
  if (!lane_) {
    if (count > host_scratch_.size()) host_scratch_.resize(count);
    return std::span(host_scratch_).first(count);
  }
  if (count > device_scratch_.size()) {
    if (!device_scratch_.empty()) lane_->device.free_memory(device_scratch_.data());
    device_scratch_ = {};
    void* memory = lane_->device.make_memory(count * sizeof(std::uint16_t));
    device_scratch_ = {static_cast<std::uint16_t*>(memory), count};
  }
  return device_scratch_.first(count);
}

void Exchange::pack(std::span<const float> data, std::span<std::uint16_t> wire, float factor,
                    ValueType type) const {
  if (lane_)
    return lane_->kernels.pack(data.data(), wire.data(), static_cast<std::int64_t>(data.size()),
                               factor, half_type(type), lane_->communication);
  pack_on_host(data, wire, factor, half_type(type));
}

void Exchange::unpack(std::span<const std::uint16_t> wire, std::span<float> data,
                      ValueType type) const {
  if (lane_)
    return lane_->kernels.unpack(wire.data(), data.data(), static_cast<std::int64_t>(data.size()),
                                 1, half_type(type), lane_->communication);
  unpack_on_host(wire, data, 1, half_type(type));
}

/// What is posted of a message; empty where it is not.
std::span<float> Exchange::postable(const Message& message) {
  const Collective& call = message.call;
  SharedAllReduce* reducer = transport_.posted();
  if (reducer == nullptr || message.log) return {};
  const bool is_mean = call.kind == CollectiveKind::kAllReduce &&
                       call.type == ValueType::kFloat32 && !call.narrows() &&
                       call.scale == Scale::kAverage;
  const std::span<float> data = is_mean
                                    ? floats_of(call.receive)
                                    : floats_in_place(call, transport_.rank(), transport_.size());
  return reducer->holds(data.data(), data.size_bytes()) ? data : std::span<float>();
}

void Exchange::post(const Message& message, std::span<float> data, Moment ready) {
  SharedAllReduce& reducer = *transport_.posted();
  const double factor = message.call.scale == Scale::kAverage ? 1.0 / transport_.size() : 1;
  log_.begin(call_of(message.call), *log_.current(), [&](const CollectiveCall& named) {
    log_.enter_in_ledger(named, message.category);
    if (log_.timing()) {
      log_.current()->records.push_back(
          {named.kind, bytes_of(named), named.root, ready.host_s, now_s(), kNotMeasured});
      log_.count(named, message.category, *log_.current());
    }
    last_posted_ = named.kind;
    posted_.push_back({kPosted | ++posts_,
                       reducer.post(data, factor, /*timed=*/true, message.call.kind),
                       log_.current()->records.size() - 1});
  });
  reducer.progress();
  note_done(reducer.finished());
}

/// Up to the message of this number.
void Exchange::finish_posted(std::uint64_t message) {
  if (posts_ == 0) return;  // on all ranks
  // Counted even if nothing is left: the rank that posts last has seen all of it done already.
  const CollectiveScope watched(session().watchdog(), last_posted_, log_.current()->iteration);
  while (!posted_.empty() && posted_.front().message <= message) {
    const std::uint32_t number = posted_.front().number;
    transport_.posted()->finish(number, Waiting::kSpin);
    note_done(number);
  }
}

/// Numbers wrap: the sign of the difference shows which is later.
void Exchange::note_done(std::uint32_t number) {
  const auto is_done = [&](const Posted& posted) {
    return static_cast<std::int32_t>(number - posted.number) >= 0;
  };
  for (; !posted_.empty() && is_done(posted_.front()); posted_.erase(posted_.begin())) {
    if (!log_.timing()) continue;
    CollectiveRecord& record = log_.current()->records[posted_.front().record];
    record.posted = transport_.posted()->times(posted_.front().number);
    record.end_s = record.posted->last.end_s;
  }
}

void Exchange::await(Mark mark, Look look) {
  if (!lane_ || (lane_->ring.happened(mark) && !transport_.abandoned())) return;
  // Not counted as a collective: the ranks that need not wait continue with the next one.
  const CollectiveScope watched(session().watchdog(), CollectiveKind::kBarrier,
                                log_.current()->iteration, CollectiveScope::Counts::kNo);
  await_device(lane_->ring, mark, transport_, session(), look);
}

void await_device(EventRing& ring, Mark mark, Transport& transport, const Session& session,
                  Look look) {
  for (;;) {
    const bool happened = ring.happened(mark);
    if (transport.abandoned()) session.wait_for_abort();
    if (happened) return;
    const std::string why = transport.lost();
    if (!why.empty()) session.end_as_lost(why);
    // Messages of other ranks make progress only while this rank calls MPI.
    int arrived = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, session.world(), &arrived, MPI_STATUS_IGNORE);
    if (look == Look::kPausing) std::this_thread::sleep_for(kLookPause);
  }
}

}  // namespace gradsync
