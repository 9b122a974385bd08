#pragma once

#include "analysis/plots/registry.h"
#include "support/table.h"

/// One function a plot, each in the file of its name; registry.cpp lists them.
namespace gradsync::report {

std::optional<Chart> make_loss_plot(const RunSet& set);
std::optional<Chart> make_iteration_time_plot(const RunSet& set);
std::optional<Chart> make_split_plot(const RunSet& set);
std::optional<Chart> make_speedup_plot(const RunSet& set);
std::optional<Chart> make_epoch_time_plot(const RunSet& set);
std::optional<Chart> make_large_batch_plot(const RunSet& set);
std::optional<Chart> make_busbw_plot(const RunSet& set);
std::optional<Chart> make_prediction_plot(const PlotInput& input);
std::optional<Chart> make_weights_plot(const RunSet& set);
std::optional<Chart> make_weights_int8_plot(const RunSet& set);
std::optional<Chart> make_activations_plot(const RunSet& set);
std::optional<Chart> make_activations_int8_plot(const RunSet& set);
std::optional<Chart> make_bias_plot(const RunSet& set);
std::optional<Chart> make_inference_plot(const RunSet& set);
std::optional<Chart> make_accuracy_plot(const RunSet& set);
std::optional<Chart> make_int8_speed_plot(const RunSet& set);

/// The plot of table `prediction`, found by the names of its columns; nothing if none of its cells
/// was measured.
std::optional<Chart> prediction_chart(const Table& table);

}  // namespace gradsync::report
