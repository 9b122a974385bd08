#pragma once

#include "analysis/plots/registry.h"

/// One function a plot, each in the file of its name; registry.cpp lists them.
namespace gradsync {

std::optional<Figure> make_loss_plot(const RunSet& set);
std::optional<Figure> make_iteration_time_plot(const RunSet& set);

}  // namespace gradsync
