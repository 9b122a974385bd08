#pragma once

#include <string>

#include "base/cli/program_output.h"
#include "comm/session.h"
#include "options/options.h"
#include "train/stop_request.h"

namespace gradsync {

/// A whole training run on the ranks of `session`: agreement, data, verification, training, record
/// and closing table. Returns the exit code; errors end the job through the session. Collective.
int run_training(const Session& session, TrainOptions options, const OptionValues& values,
                 const std::string& command_line, const StopRequest& stop, ProgramOutput& output);

}  // namespace gradsync
