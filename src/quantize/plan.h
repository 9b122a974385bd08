// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace gradsync::quantize {

enum class NodeKind { kConvolution, kMaxPool, kMeanPool };

/// One step of a network as it is quantized. Linear layers are convolutions whose kernel is as
/// large as what they see. Value 0 of a plan is the image, value i + 1 what node i gives.
struct Node {
  NodeKind kind = NodeKind::kConvolution;
  std::string name;
  std::size_t input = 0;  ///< the value it reads
  int added = -1;         ///< the value added before its ReLU; -1: none
  bool relu = false;
  std::size_t kernel = 1, stride = 1, padding = 0;  ///< of pools: kernel = stride
  std::size_t in_channels = 0, in_side = 0, out_channels = 0, out_side = 0;
  std::string parameters;  ///< names in the checkpoint: parameters/<this>.weight
  std::string norm;        ///< its batch norm, likewise; empty: none
  bool linear = false;     ///< the checkpoint holds its weights as a matrix
  bool biased = false;     ///< the checkpoint holds a bias

  std::size_t weights() const { return out_channels * kernel * kernel * in_channels; }
};

/// A network as a list of nodes, each after those it reads; the last one gives the logits.
struct Plan {
  std::string model;
  std::vector<Node> nodes;

  /// Whether a node has integers of its own for its output: the last one has not (its accumulators
  /// are the logits), a maximum keeps those of its input.
  bool rescales(std::size_t node) const {
    return node + 1 < nodes.size() && nodes[node].kind != NodeKind::kMaxPool;
  }
  /// Whether a node has weights.
  bool weighted(std::size_t node) const { return nodes[node].kind == NodeKind::kConvolution; }
};

/// The networks that can be quantized, as --model of the trainer names them.
const std::vector<std::string>& plan_names();

/// The plan for images [3, 32, 32]. Throws Error kUsage for a network that has none.
Plan make_plan(const std::string& model);

}  // namespace gradsync::quantize
