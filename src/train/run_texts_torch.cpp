#include <algorithm>
#include <iostream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/version.h>

#include "train/run_texts.h"

namespace gradsync {

void print_environment(const TrainOptions& options, const DataDigest& digest, const RunData& data,
                       const ComputeSettings& compute, const std::vector<RankPlace>& places) {
  std::cout << fmt::format(
                   "{} with {}, {} ranks, batch {} per rank, {} global{}\n", options.model,
                   options.sync, places.size(), options.batch_per_rank, options.batch_global,
                   options.accumulate > 1 ? fmt::format(" in {} passes", options.accumulate) : "")
            << fmt::format("data: {}, {} training and {} test images, sha256 {}\n", digest.name,
                           data.size(Split::kTrain), data.size(Split::kTest),
                           digest.combined.substr(0, 16))
            << fmt::format("compute: {} {}, {} threads a rank{}\n",
                           precision_name(compute.precision),
                           compute.layout == Layout::kNchw ? "nchw" : "nhwc", compute.threads,
                           compute.probed.empty()
                               ? ""
                               : fmt::format(" (probed: {})", fmt::join(compute.probed, ", ")));
  for (const RankPlace& place : places)
    if (place.local_rank == 0)
      std::cout << fmt::format("host {}: {}, rank {} on cores {}\n", place.host, place.device,
                               place.rank, place.affinity);
  std::cout << std::flush;
  for (const std::string& warning : compute.warnings)
    print_warning("gradsync-train", warning);
  if (!options.set_epoch && options.epochs > 1)
    print_warning("gradsync-train", "--no-set-epoch: every epoch repeats the order of the first");
}

void print_device(const DeviceChoice& device, const TransportChoice& transport) {
  if (!device.why.empty()) std::cout << fmt::format("device: cpu; no GPU: {}\n", device.why);
  std::cout << fmt::format("transport: {} ({})\n", transport.name, transport.why) << std::flush;
  if (device.shared)
    print_warning("gradsync-train",
                  "--allow-shared-gpu: ranks share a GPU, times are not meaningful");
}

Table verification_table(const std::vector<VerificationRow>& rows) {
  Table table{
      "verification", "Modes compared after 3 iterations (reference: allreduce)", {}, {}, {}};
  table.columns = {{"mode", "mode", true},           {"ranks_equal", "ranks equal", true},
                   {"difference", "difference"},     {"tolerance", "tolerance"},
                   {"hash", "parameter hash", true}, {"result", "result", true}};
  for (const VerificationRow& row : rows)
    table.add({row.mode, row.ranks_equal ? "yes" : "no", fmt::format("{:.2e}", row.difference),
               fmt::format("{:.0e}", row.tolerance), row.parameter_hash,
               row.passed ? "ok" : "FAILED"});
  table.notes = {
      "difference: largest |a - b| over all parameters; it has to be 0 on more than one rank "
      "except for none"};
  return table;
}

std::string hosts_of(const std::vector<RankPlace>& places) {
  std::vector<std::string> hosts;
  for (const RankPlace& place : places)
    if (std::find(hosts.begin(), hosts.end(), place.host) == hosts.end())
      hosts.push_back(place.host);
  return fmt::format("{}", fmt::join(hosts, ","));
}

std::vector<NamedText> provenance(const DataDigest& data, const ComputeSettings& compute) {
  std::vector<NamedText> all = machine_provenance("gradsync-train");
  const std::vector<NamedText> own = {
      {"libtorch", TORCH_VERSION},
      {"data_name", data.name},
      {"data_sha256", data.combined},
      {"precision", precision_name(compute.precision)},
      {"layout", compute.layout == Layout::kNchw ? "nchw" : "nhwc"},
      {"probed", fmt::format("{}", fmt::join(compute.probed, "; "))},
  };
  all.insert(all.end(), own.begin(), own.end());
  for (const FileDigest& file : data.files)
    all.push_back({"data_sha256." + file.file, file.sha256});
  return all;
}

}  // namespace gradsync
