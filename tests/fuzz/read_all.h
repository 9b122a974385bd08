#pragma once

#include "record/reader.h"

namespace gradsync::fuzz {

/// Asks a run for everything that it holds.
void read_all(RunReader& run);

}  // namespace gradsync::fuzz
