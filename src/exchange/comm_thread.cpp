#include "exchange/comm_thread.h"

#include <future>
#include <utility>

namespace gradsync {

// Shared with the thread, so that a detached thread never touches freed memory.
struct CommThread::Queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> jobs;
  std::uint64_t submitted = 0, done = 0;
  bool busy = false, stopping = false;
  std::exception_ptr failure;

  bool idle() const { return jobs.empty() && !busy; }
};

CommThread::CommThread()
    : queue_(std::make_shared<Queue>()), thread_([queue = queue_] { work(queue); }) {}

CommThread::~CommThread() {
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

std::uint64_t CommThread::submit(std::function<void()> job) {
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->jobs.push_back(std::move(job));
    number = ++queue_->submitted;
  }
  queue_->changed.notify_all();
  return number;
}

void CommThread::wait_for(std::uint64_t number) {
  std::unique_lock lock(queue_->mutex);
  queue_->changed.wait(lock, [&] { return queue_->done >= number || queue_->failure; });
  if (queue_->failure) std::rethrow_exception(std::exchange(queue_->failure, nullptr));
}

void CommThread::run(const std::function<void()>& job) {
  std::packaged_task<void()> task(job);
  auto done = task.get_future();
  submit([&task] { task(); });
  done.get();
}

void CommThread::drain() {
  std::unique_lock lock(queue_->mutex);
  queue_->changed.wait(lock, [this] { return queue_->idle(); });
  if (queue_->failure) std::rethrow_exception(std::exchange(queue_->failure, nullptr));
}

void CommThread::work(const std::shared_ptr<Queue>& queue) {
  std::unique_lock lock(queue->mutex);
  for (;;) {
    queue->changed.wait(lock, [&] { return queue->stopping || !queue->jobs.empty(); });
    if (queue->jobs.empty()) return;
    const auto job = std::move(queue->jobs.front());
    queue->jobs.pop_front();
    queue->busy = true;
    lock.unlock();
    std::exception_ptr failure;
    try {
      job();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    queue->busy = false;
    ++queue->done;
    if (failure && !queue->failure) queue->failure = failure;
    queue->changed.notify_all();
  }
}

}  // namespace gradsync
