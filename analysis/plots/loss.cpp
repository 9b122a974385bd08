#include "analysis/plots/line_figure.h"
#include "analysis/plots/plots.h"
#include "analysis/read/columns.h"

namespace gradsync::report {

std::optional<Chart> make_loss_plot(const RunSet& set) {
  const auto panels = make_panels(set, [](RunReader& run) { return mean_over_ranks(run.loss()); });
  if (panels.empty()) return std::nullopt;
  return chart_of({"Loss against iteration, " + models_text(set),
                   {"loss", "training loss, mean over ranks", "", 0, false},
                   true,
                   line_caption(),
                   panels});
}

}  // namespace gradsync::report
