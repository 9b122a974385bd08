#pragma once

#include <string>
#include <vector>

#include "record/run.h"

namespace gradsync {

/// Whether the value of this environment variable is recorded: it is in a list of names that say
/// how a job was placed or a library was tuned. Run files are shared, so a name that nobody
/// looked at is not recorded, whatever it begins with.
bool may_record(const std::string& name);

/// "env.NAME" and value of the variables that are set and may be recorded.
std::vector<NamedText> recorded_environment();

}  // namespace gradsync
