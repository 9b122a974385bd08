#pragma once

#include <csignal>

namespace gradsync {

/// While it lives, a signal does to this process what it does by default.
class DefaultSignal {
 public:
  explicit DefaultSignal(int signal) : signal_(signal) {
    struct sigaction action = {};
    action.sa_handler = SIG_DFL;
    sigaction(signal_, &action, &before_);
  }
  ~DefaultSignal() { sigaction(signal_, &before_, nullptr); }
  DefaultSignal(const DefaultSignal&) = delete;
  DefaultSignal& operator=(const DefaultSignal&) = delete;

 private:
  int signal_;
  struct sigaction before_ = {};
};

}  // namespace gradsync
