#include "analysis/figures/quantized_figures.h"
#include "analysis/tables/tables.h"

namespace gradsync::report {

namespace {

std::vector<Column> quantize_speed_columns() {
  const std::string speed = "/quantize/speed/";
  std::vector<Column> result = {
      {"model", "model", true},
      {"path", "path", true},
      {"batch", "batch", false, "images at once", speed + "batch"},
      {"threads", "threads", false, "compute threads", speed + "threads"},
      {"rounds", "n", false, "rounds", speed + "rounds"},
      {"images_per_s", "images/s", false, "batch / median time of a call",
       speed + "images_per_second"},
      {"ratio", "to best fp32", false, "median time of the best fp32 path / median time",
       speed + "ratio"},
      {"ratio_low", "low", false, "lower end of the 95 % interval", speed + "ratio_low"},
      {"ratio_high", "high", false, "upper end of the 95 % interval", speed + "ratio_high"},
      {"run", "run", true}};
  keep(result, {"images_per_s", "ratio"});
  return result;
}

}  // namespace

Table make_quantize_speed_table(const RunSet& set, const TableOptions&) {
  Table table{"quantize-speed",
              "Images per second, from normalized float images to logits",
              {"paths take turns in each of n rounds; the best fp32 path is the one with the "
               "smallest median time at this batch",
               "the interval is the percentile bootstrap's of a ratio of medians"},
              quantize_speed_columns(),
              {}};
  for (const Run& run : set.quantized)
    for (const QuantizedSpeedRow& row : run.reader->quantization().speeds)
      table.add({run.model, row.path, Cell::count(static_cast<double>(row.batch)),
                 Cell::count(static_cast<double>(row.threads)),
                 Cell::count(static_cast<double>(row.rounds)), Cell::of(row.images_per_s, 0),
                 Cell::of(row.ratio, 2), Cell::of(row.ratio_low, 2), Cell::of(row.ratio_high, 2),
                 run.name},
                run.path.string());
  return table;
}

}  // namespace gradsync::report
