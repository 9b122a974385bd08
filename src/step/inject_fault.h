#pragma once

#include <cstdint>

#include "exchange/exchange.h"
#include "options/fault.h"
#include "step/gradient_guard.h"

namespace gradsync {

/// Does to this rank what --inject-fault asked for, before an iteration: at once, or to the next
/// gradient or collective. Some kinds do not return.
void inject_fault(FaultKind kind, Exchange& exchange, GradientGuard& guard, std::int64_t iteration);

}  // namespace gradsync
