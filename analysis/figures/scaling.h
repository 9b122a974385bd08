#pragma once

/// Speedup, efficiency and the split that is derived from epoch times alone: pure formulas, used
/// for run files and for published tables alike. Times in one unit, any; a result is NaN where an
/// input is NaN, a time is not positive or a count of ranks is below one. Nothing is clipped.
namespace gradsync::report {

/// T(base)/T(n), also above n ("super-linear").
double speedup(double base_time, double time);

/// Strong scaling (global batch fixed): E = T(base)/T(n) · base/n.
double strong_efficiency(double base_time, double base_ranks, double time, double ranks);

/// Weak scaling (batch per rank fixed), by iteration times: E = T(base)/T(n).
double weak_efficiency(double base_iteration_time, double iteration_time);

/// N·T(1)/T(N), which some reports call "weak speedup"; a scaled speedup only where T is the time
/// of work that grows with N (an iteration at a fixed batch per rank).
double weak_speedup(double time_of_one, double time, double ranks);

/// The derived split, from the time of one rank and of n ranks over the same images.
double derived_compute(double time_of_one, double ranks);                     ///< T(1)/n
double derived_communication(double time_of_one, double time, double ranks);  ///< T(n) − T(1)/n

}  // namespace gradsync::report
