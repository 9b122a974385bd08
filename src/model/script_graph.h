#pragma once

#include <set>
#include <string>
#include <vector>

#include <torch/csrc/jit/api/module.h>

namespace gradsync {

/// What the graph of a TorchScript module's forward pass, with all that it calls, says of every
/// pass: a pass that is tried shows what one batch and one draw of random numbers lead to.
/// Attributes are named by their path: "encoder.layer.weight".
struct ScriptGraph {
  explicit ScriptGraph(const torch::jit::Module& module);

  /// Attributes that a pass assigns: `self.mean = …`.
  std::set<std::string> assigned;
  /// Lists, dictionaries and tuples that it changes, or tensors in them.
  std::set<std::string> changed;
  /// Attributes that it uses in every pass, and those that it uses only in a branch or loop that
  /// values of tensors choose: of samples, of what was drawn, of parameters.
  std::set<std::string> used, chosen;
};

}  // namespace gradsync
