#pragma once

#include <string>
#include <vector>

#include "base/cli/program_help.h"
#include "comm/watched_phases.h"

namespace gradsync::check {

/// The settings of gradsync-check, all checked.
struct CheckOptions {
  std::string data = "data/cifar-10";  ///< folder of the data set
  std::string results = "results";     ///< folder that runs will be written to
  int ranks = 0;                       ///< the job must have so many; 0: any
  int ranks_per_node = 0;              ///< each host must have so many; 0: any
  int threads = 0;                     ///< compute threads a rank will use; 0: the trainer chooses
  std::string device = "auto";         ///< auto, cpu or cuda
  bool allow_shared_gpu = false;
  std::vector<std::string> skip;  ///< ids of checks that are left out
  double timeout_s = 60;
  double least_link = 0;       ///< share of its nominal rate that a link must have; 0: a warning
  std::string sysfs = "/sys";  ///< where the kernel states rates
  std::string json, junit;     ///< files, or empty
};

OptionTable check_option_table();
ProgramHelp check_help();
/// Throws Error kUsage with the option, its value, its source and what would be right.
CheckOptions check_options(const OptionValues& values);
/// --timeout limits the start as well.
WatchLimits watch_limits(const CheckOptions& options);

}  // namespace gradsync::check
