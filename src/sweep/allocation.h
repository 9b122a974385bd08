#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace gradsync::sweep {

/// The nodes that Slurm has given to the job this process runs in.
struct Allocation {
  std::string job;  ///< its id
  std::int64_t nodes = 1;
  std::int64_t ranks_per_node = 1;  ///< asked for; where nothing was: one a GPU, else one a node
  std::int64_t cpus_per_node = 1;   ///< of the node with the fewest
  std::int64_t cpus_per_rank = 1;  ///< asked for; where nothing was: those of a node over its ranks
  std::int64_t gpus_per_node = 0;
  std::int64_t most_ranks_per_node = 0;  ///< asked for with --ntasks-per-node; 0: was not
};

/// The value of an environment variable; empty if it is not set.
using Environment = std::function<std::string(const std::string& name)>;

/// Reads SLURM_*; nothing outside a job. Throws Error kEnvironment for a value that Slurm would not
/// write.
std::optional<Allocation> allocation_of(const Environment& environment);

/// The same of this process.
std::optional<Allocation> current_allocation();

/// Nodes and ranks on each of them (the last may hold fewer).
struct Shape {
  std::int64_t nodes = 1, ranks_per_node = 1;
  auto operator<=>(const Shape&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// As few nodes as hold `ranks` with at most `ranks_per_node` on each. Both are at least 1.
Shape shape_of(std::int64_t ranks, std::int64_t ranks_per_node);

/// "2 nodes × 4 ranks".
std::string shape_text(const Shape& shape);

}  // namespace gradsync::sweep
