#include "model/network.h"

#include "support/error.h"

namespace gradsync {

const std::vector<NetworkEntry>& networks() {
  static const std::vector<NetworkEntry> entries = {
      {"vgg11", make_vgg11},
      {"resnet18", make_resnet18},
      {"resnet18-imagenet", make_resnet18_imagenet},
      {"lenet", make_lenet},
  };
  return entries;
}

std::shared_ptr<Network> make_network(const std::string& name, std::uint64_t seed) {
  for (const NetworkEntry& entry : networks())
    if (entry.name == name) {
      torch::manual_seed(seed);
      return entry.make();
    }
  throw Error(ExitCode::kUsage, "no network is called " + name, "gradsync-train --help lists them");
}

}  // namespace gradsync
