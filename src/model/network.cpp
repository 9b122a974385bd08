#include "model/network.h"

#include "support/error.h"

namespace gradsync {

namespace {

struct Entry {
  const char* name;
  std::shared_ptr<Network> (*make)();
};

constexpr Entry kNetworks[] = {
#define GRADSYNC_NETWORK(id, name) {name, make_##id},
#include "options/networks.def"
#undef GRADSYNC_NETWORK
};

}  // namespace

std::shared_ptr<Network> make_network(const std::string& name, std::uint64_t seed) {
  for (const Entry& entry : kNetworks)
    if (entry.name == name) {
      torch::manual_seed(seed);
      return entry.make();
    }
  throw Error(ExitCode::kUsage, "no network is called " + name, "gradsync-train --help lists them");
}

}  // namespace gradsync
