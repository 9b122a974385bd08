// SPDX-License-Identifier: BSD-3-Clause
#include "machine/lane.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"

namespace gradsync {

EventRing::EventRing(Device& device, std::size_t events) : device_(device) {
  for (std::size_t i = 0; i < std::max<std::size_t>(events, 1); ++i)
    events_.push_back(device_.make_event());
}

EventRing::~EventRing() {
  for (const EventHandle event : events_)
    device_.free_event(event);
}

Mark EventRing::mark(StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  if (next_ - first_ == static_cast<std::int64_t>(events_.size())) grow();
  const Mark mark{next_++};
  device_.record(event_of(mark), stream);
  return mark;
}

void EventRing::wait(StreamHandle stream, Mark mark) {
  const std::lock_guard lock(mutex_);
  device_.wait(stream, event_of(mark));
}

bool EventRing::in_use(Mark mark) const {
  const std::lock_guard lock(mutex_);
  return mark.ticket >= first_ && mark.ticket < next_;
}

bool EventRing::happened(Mark mark) {
  const std::lock_guard lock(mutex_);
  return device_.happened(event_of(mark));
}

double EventRing::elapsed_s(Mark from, Mark to) {
  const std::lock_guard lock(mutex_);
  return device_.elapsed_s(event_of(from), event_of(to));
}

void EventRing::wait_for(Mark mark) {
  EventHandle event = nullptr;
  {
    const std::lock_guard lock(mutex_);
    event = event_of(mark);
  }
  device_.wait_for(event);
}

std::int64_t EventRing::next_ticket() const {
  const std::lock_guard lock(mutex_);
  return next_;
}

void EventRing::release_below(std::int64_t ticket) {
  const std::lock_guard lock(mutex_);
  first_ = std::clamp(ticket, first_, next_);
}

std::size_t EventRing::events() const {
  const std::lock_guard lock(mutex_);
  return events_.size();
}

/// Twice the events; the marks in use go to where the larger ring looks for them.
void EventRing::grow() {
  const auto size = static_cast<std::int64_t>(events_.size());
  std::vector<EventHandle> larger(2 * events_.size(), nullptr);
  for (std::int64_t ticket = first_; ticket < next_; ++ticket)
    larger[static_cast<std::size_t>(ticket % (2 * size))] =
        events_[static_cast<std::size_t>(ticket % size)];
  for (EventHandle& event : larger)
    if (event == nullptr) event = device_.make_event();
  events_ = std::move(larger);
}

EventHandle EventRing::event_of(Mark mark) const {
  if (mark.ticket < first_ || mark.ticket >= next_)
    throw Error(ExitCode::kInternal,
                fmt::format("event {} is not among {} to {}", mark.ticket, first_, next_ - 1));
  return events_[static_cast<std::size_t>(mark.ticket) % events_.size()];
}

}  // namespace gradsync
