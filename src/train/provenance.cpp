#include "train/provenance.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/version.h>

namespace gradsync {

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
