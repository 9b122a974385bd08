#pragma once

#include <optional>
#include <string>
#include <vector>

#include "record/run.h"
#include "support/error.h"

namespace gradsync {

/// What a rank on `host` states, as it travels to rank 0. Bytes that are not UTF-8 are replaced.
std::string packed_statement(const std::string& host, const std::vector<NamedText>& stated);

/// Why the ranks, in order, do not state the same: kRanksDisagree with the first difference, both
/// ranks and both values. Nothing where they do.
std::optional<Error> disagreement(const std::vector<std::string>& statements);

}  // namespace gradsync
