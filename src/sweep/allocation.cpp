#include "sweep/allocation.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "base/error.h"
#include "base/parse.h"

namespace gradsync::sweep {

namespace {

// Slurm's counts: "4", "4(x2)" for two nodes alike, "gpu:4" or "gpu:h200:4" for a type.
std::int64_t count_in(const std::string& text, const std::string& variable) {
  const std::string plain = text.substr(0, text.find('('));
  const std::size_t colon = plain.rfind(':');
  try {
    return parse_integer(colon == std::string::npos ? plain : plain.substr(colon + 1));
  } catch (const Error& error) {
    throw Error(ExitCode::kEnvironment, fmt::format("{}={}: {}", variable, text, error.what()),
                "unset it, or start inside sbatch or salloc");
  }
}

// The smallest count of a list with an entry a kind of node ("4(x2),2"); 0 if it is not set.
std::int64_t count_of(const Environment& environment, const std::string& variable) {
  const std::string text = environment(variable);
  if (text.empty()) return 0;
  std::int64_t least = 0;
  for (const auto& part : split_list(text, ',')) {
    const std::int64_t count = count_in(part, variable);
    least = least == 0 ? count : std::min(least, count);
  }
  return std::max<std::int64_t>(0, least);
}

// A node with GPUs of several types has all of them: "a100:2,v100:2" is 4. Other lists have an
// entry a kind of node.
std::int64_t gpus_per_node(const Environment& environment) {
  for (const char* variable : {"SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"}) {
    const std::string text = environment(variable);
    std::int64_t count = 0;
    for (const auto& part : split_list(text, ','))
      count += text.empty() ? 0 : std::max<std::int64_t>(0, count_in(part, variable));
    if (count > 0) return count;
  }
  const std::string ids = environment("SLURM_JOB_GPUS");
  return ids.empty() ? 0 : static_cast<std::int64_t>(split_list(ids, ',').size());
}

std::int64_t ranks_per_node(const Environment& environment, const Allocation& allocation) {
  if (allocation.most_ranks_per_node > 0) return allocation.most_ranks_per_node;
  if (const std::int64_t tasks = count_of(environment, "SLURM_NTASKS"); tasks > 0)
    return shape_of(tasks, (tasks + allocation.nodes - 1) / allocation.nodes).ranks_per_node;
  return std::max<std::int64_t>(1, allocation.gpus_per_node);
}

std::int64_t at_least_one(std::int64_t count) {
  return std::max<std::int64_t>(1, count);
}

}  // namespace

std::optional<Allocation> allocation_of(const Environment& environment) {
  Allocation allocation;
  allocation.job = environment("SLURM_JOB_ID");
  if (allocation.job.empty()) return std::nullopt;
  allocation.nodes = at_least_one(count_of(environment, "SLURM_JOB_NUM_NODES"));
  allocation.gpus_per_node = gpus_per_node(environment);
  allocation.most_ranks_per_node = count_of(environment, "SLURM_NTASKS_PER_NODE");
  allocation.ranks_per_node = ranks_per_node(environment, allocation);
  allocation.cpus_per_node = at_least_one(count_of(environment, "SLURM_JOB_CPUS_PER_NODE"));
  allocation.cpus_per_rank = count_of(environment, "SLURM_CPUS_PER_TASK");
  if (allocation.cpus_per_rank == 0)
    allocation.cpus_per_rank = at_least_one(allocation.cpus_per_node / allocation.ranks_per_node);
  return allocation;
}

std::optional<Allocation> current_allocation() {
  return allocation_of([](const std::string& name) {
    const char* value = std::getenv(name.c_str());
    return std::string(value == nullptr ? "" : value);
  });
}

Shape shape_of(std::int64_t ranks, std::int64_t ranks_per_node) {
  const std::int64_t on_node = std::min(ranks, ranks_per_node);
  return {(ranks + on_node - 1) / on_node, on_node};
}

std::string shape_text(const Shape& shape) {
  return count_text(shape.nodes, "node") + " × " + count_text(shape.ranks_per_node, "rank");
}

}  // namespace gradsync::sweep
