// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "record/run.h"

namespace gradsync {

/// Whether the value of this environment variable is recorded: it is in a list of names that say
/// how a job was placed or a library was tuned. Run files are shared, so a name that nobody
/// looked at is not recorded, whatever it begins with.
bool may_record(const std::string& name);

/// "env.NAME" and value of the variables that are set and may be recorded.
std::vector<NamedText> recorded_environment();

/// What a rank on `host` states, as it travels to rank 0. Bytes that are not UTF-8 are replaced.
std::string packed_statement(const std::string& host, const std::vector<NamedText>& stated);

/// Why the ranks, in order, do not state the same: kRanksDisagree with the first difference, both
/// ranks and both values. Nothing where they do.
std::optional<Error> disagreement(const std::vector<std::string>& statements);

}  // namespace gradsync
