#include "analysis/figures/scaling.h"

#include <limits>

#include "record/run.h"

namespace gradsync::report {

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

double count(double ranks) {
  return ranks >= 1 ? ranks : kNone;
}

}  // namespace

double speedup(double base_time, double time) {
  return positive(base_time) / positive(time);
}

double strong_efficiency(double base_time, double base_ranks, double time, double ranks) {
  return speedup(base_time, time) * count(base_ranks) / count(ranks);
}

double weak_efficiency(double base_iteration_time, double iteration_time) {
  return speedup(base_iteration_time, iteration_time);
}

double weak_speedup(double time_of_one, double time, double ranks) {
  return count(ranks) * speedup(time_of_one, time);
}

double derived_compute(double time_of_one, double ranks) {
  return positive(time_of_one) / count(ranks);
}

double derived_communication(double time_of_one, double time, double ranks) {
  return positive(time) - derived_compute(time_of_one, ranks);
}

}  // namespace gradsync::report
