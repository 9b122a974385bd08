// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>

namespace gradsync {

/// Seconds on the steady clock of this host. Only differences mean anything; clocks of different
/// hosts are related by RankPlace::clock_offset_s.
inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Seconds since it was made or restarted.
class Stopwatch {
 public:
  double elapsed_s() const { return now_s() - begin_s_; }
  double begin_s() const { return begin_s_; }
  /// Returns what had elapsed and starts again at 0, with no gap between the two.
  double restart_s() {
    const double now = now_s();
    const double elapsed = now - begin_s_;
    begin_s_ = now;
    return elapsed;
  }

 private:
  double begin_s_ = now_s();
};

/// How much time a run needs until it can stop the next time, from what was measured so far.
class StopForecast {
 public:
  /// `save_s` is a guess until `saved` is called. An evaluation takes as long as
  /// `evaluation_iterations` iterations until `evaluated` is called: an iteration computes each
  /// batch forward and backward, an evaluation forward only.
  StopForecast(double save_s, double evaluation_iterations)
      : save_s_(save_s), evaluation_iterations_(evaluation_iterations) {}

  /// `time_s`: of one iteration.
  void iterated(double time_s) { iteration_s_ = time_s; }
  void saved(double time_s) { save_s_ = time_s; }
  void evaluated(double time_s) {
    evaluation_s_ = time_s;
    has_evaluated_ = true;
  }

  /// For so many `iterations` and a checkpoint (none where the run is not `recorded`), after an
  /// evaluation if one comes first. With a margin: no iteration takes as long as the one before.
  double needed_s(bool recorded, bool evaluates, std::int64_t iterations = 1) const {
    const double evaluation_s =
        has_evaluated_ ? kEvaluationMargin * evaluation_s_ : evaluation_iterations_ * iteration_s_;
    const double iterations_s = static_cast<double>(iterations) * iteration_s_;
    return kMargin * (iterations_s + (recorded ? save_s_ : 0)) + (evaluates ? evaluation_s : 0);
  }

 private:
  static constexpr double kMargin = 2, kEvaluationMargin = 1.5;

  double iteration_s_ = 0, save_s_, evaluation_s_ = 0, evaluation_iterations_;
  bool has_evaluated_ = false;
};

}  // namespace gradsync
