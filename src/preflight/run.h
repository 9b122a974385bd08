#pragma once

#include <string>

#include "check/options.h"
#include "comm/session.h"
#include "support/launcher.h"

namespace gradsync::check {

/// Runs the checks and prints them on rank 0 while it does; writes --json and --junit. Returns 0,
/// or ends the job with kEnvironment if one failed. Collective.
int run_preflight(const Session& session, const Launcher& launcher, const CheckOptions& options,
                  const std::string& command_line);

}  // namespace gradsync::check
