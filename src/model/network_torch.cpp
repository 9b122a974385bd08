// SPDX-License-Identifier: BSD-3-Clause
#include <torch/nn/modules/container/sequential.h>

#include "base/error.h"
#include "model/network.h"

namespace gradsync {

namespace {

struct Entry {
  const char* form;
  std::shared_ptr<Network> (*make)(const std::string& model);
};

constexpr Entry kNetworks[] = {
#define GRADSYNC_NETWORK(id, form, input, check) {form, make_##id},
#include "options/networks.def"
#undef GRADSYNC_NETWORK
};

}  // namespace

torch::Tensor Network::through(torch::nn::SequentialImpl& parts, torch::Tensor x) const {
  for (torch::nn::AnyModule& one : parts) {
    const auto part = one.ptr();
    at(part);
    x = one.forward(std::move(x));
  }
  return x;
}

std::shared_ptr<Network> make_network(const std::string& model, std::uint64_t seed) {
  for (const Entry& entry : kNetworks)
    if (is_network(entry.form, model)) {
      torch::manual_seed(seed);
      return entry.make(model);
    }
  throw Error(ExitCode::kUsage, "no network is called " + model,
              "gradsync-train --help lists them");
}

}  // namespace gradsync
