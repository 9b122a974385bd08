#include "analysis/metrics/columns.h"
#include "analysis/plots/line_figure.h"
#include "analysis/plots/plots.h"

namespace gradsync {

std::optional<Figure> make_loss_plot(const RunSet& set) {
  const auto panels = make_panels(set, [](RunReader& run) { return mean_over_ranks(run.loss()); });
  if (panels.empty()) return std::nullopt;
  return render({"Loss against iteration, " + models_text(set), "loss",
                 "training loss, mean over ranks", false, true, panels});
}

}  // namespace gradsync
