#pragma once

#include "analysis/plots/registry.h"

/// One function a plot, each in the file of its name; registry.cpp lists them.
namespace gradsync {

std::optional<Chart> make_loss_plot(const RunSet& set);
std::optional<Chart> make_iteration_time_plot(const RunSet& set);
std::optional<Chart> make_split_plot(const RunSet& set);
std::optional<Chart> make_speedup_plot(const RunSet& set);
std::optional<Chart> make_epoch_time_plot(const RunSet& set);
std::optional<Chart> make_busbw_plot(const RunSet& set);

}  // namespace gradsync
