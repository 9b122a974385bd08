#include "analysis/published/learning_cells.h"

namespace gradsync::report::published {

std::vector<Column> learning_columns() {
  const std::string printed = "as printed";
  return {{"loss", "loss", false, printed, "epoch_N_loss"},
          {"accuracy_percent", "accuracy %", false, printed, "epoch_N_accuracy"},
          {"train_loss", "train loss", false, printed, "train_loss"},
          {"train_accuracy_percent", "train %", false, printed, "train_accuracy"},
          {"test_loss", "test loss", false, printed, "test_loss"},
          {"test_accuracy_percent", "test %", false, "as printed, or right / all", "test_correct"}};
}

std::vector<Cell> learning_cells(const PrintedEpoch& epoch) {
  return {Cell::of(epoch.loss, 4),       Cell::of(1e2 * epoch.accuracy, 2),
          Cell::of(epoch.train_loss, 4), Cell::of(1e2 * epoch.train_accuracy, 2),
          Cell::of(epoch.test_loss, 4),  Cell::of(1e2 * epoch.test_accuracy, 2)};
}

}  // namespace gradsync::report::published
