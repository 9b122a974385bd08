#include <algorithm>

#include "train/deferred_updates.h"

namespace gradsync {

namespace {

/// Removes the callback at the end of the forward pass, also after an exception.
class OpenGate {
 public:
  OpenGate(Network& network, Network::Gate gate) : network_(network) {
    network_.set_gate(std::move(gate));
  }
  ~OpenGate() { network_.set_gate({}); }
  OpenGate(const OpenGate&) = delete;
  OpenGate& operator=(const OpenGate&) = delete;

 private:
  Network& network_;
};

std::vector<std::size_t> indices_in(const std::vector<torch::Tensor>& all,
                                    const torch::nn::Module& part) {
  std::vector<std::size_t> indices;
  for (const torch::Tensor& parameter : part.parameters())
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i].is_same(parameter)) indices.push_back(i);
  return indices;
}

}  // namespace

DeferredUpdates::DeferredUpdates(Replica& replica, DeferredGradients& gradients,
                                 Optimizer& optimizer)
    : replica_(replica),
      gradients_(gradients),
      optimizer_(optimizer),
      pending_(replica.parameters.size(), false) {
  for (const auto& part : replica.network->modules())
    parameters_of_[part.get()] = indices_in(replica.parameters, *part);
}

void DeferredUpdates::carry(double learning_rate) {
  optimizer_.begin_step(learning_rate);
  pending_.assign(pending_.size(), true);
}

torch::Tensor DeferredUpdates::forward(const torch::Tensor& images,
                                       const std::function<void(const Parameters&)>& before) {
  const auto settle = [&](const Parameters& parameters) {
    if (!parameters.empty()) before(parameters);
  };
  const OpenGate gate(*replica_.network,
                      [&](const torch::nn::Module& part) { settle(pending_of(part)); });
  torch::Tensor outputs = replica_.network->forward(images);
  settle(all_pending());
  return outputs;
}

void DeferredUpdates::step(const Parameters& parameters) {
  for (const std::size_t parameter : parameters) {
    optimizer_.step_parameter(parameter);
    pending_[parameter] = false;
  }
}

DeferredUpdates::Parameters DeferredUpdates::pending_of(const torch::nn::Module& part) const {
  Parameters pending = parameters_of_.at(&part);
  std::erase_if(pending, [&](std::size_t parameter) { return !pending_[parameter]; });
  return pending;
}

DeferredUpdates::Parameters DeferredUpdates::all_pending() const {
  Parameters pending;
  for (std::size_t parameter = 0; parameter < pending_.size(); ++parameter)
    if (pending_[parameter]) pending.push_back(parameter);
  return pending;
}

std::unique_ptr<DeferredUpdates> deferred_updates(Replica& replica, SyncMode& mode,
                                                  Optimizer& optimizer) {
  DeferredGradients* gradients = mode.deferred();
  return gradients ? std::make_unique<DeferredUpdates>(replica, *gradients, optimizer) : nullptr;
}

}  // namespace gradsync
