// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_info.h"
#include "options/options.h"
#include "record/recorder.h"
#include "train/batch_source.h"
#include "train/compute_settings.h"
#include "train/iteration.h"
#include "train/resume.h"

namespace gradsync {

/// What a run needs beside its settings.
struct RunSetting {
  const TrainOptions& options;
  DataSource data;
  const ComputeSettings& compute;
  const std::vector<RankPlace>& places;  ///< of all ranks, on rank 0
  double clock_offset_s = 0;             ///< add to this rank's clock to read rank 0's
  double start_s = 0;                    ///< start of the run on rank 0's clock
  Recorder* recorder = nullptr;          ///< on rank 0, if the run is recorded
  const StopRequest* stop = nullptr;     ///< what may stop it early
  const ResumePlan* resume = nullptr;    ///< where the run resumes, or null
  CheckpointInfo description = {};       ///< of the run, on rank 0
  std::string command_line = {};
  std::string gpu_uuid = {};   ///< of this rank; empty on the CPU
  std::string contender = {};  ///< of --compare: begins the lines that are printed
  double worth = 1;  ///< iterations of the experiment's reference that compute as much as one of it
  /// Tests have one that records nothing.
  std::function<std::unique_ptr<StepGraph>()> make_graph = [] {
    return std::make_unique<StepGraph>();
  };
  bool quiet = false;  ///< no progress on stderr
  bool trial = false;  ///< not recorded, and nothing is printed of it
};

}  // namespace gradsync
