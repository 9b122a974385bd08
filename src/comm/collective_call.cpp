// SPDX-License-Identifier: BSD-3-Clause
#include "comm/collective_call.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "stats/random.h"

namespace gradsync {

namespace {

constexpr std::array<std::string_view, 7> kTypeNames = {"float32", "bfloat16", "float16", "byte",
                                                        "float64", "int8",     "int32"};

}  // namespace

std::string to_string(const CollectiveCall& call, const std::string& mode_name) {
  const std::string root = call.root >= 0 ? fmt::format(" with root {}", call.root) : "";
  const char* op = call.op == ReduceOp::kSum ? ", sum" : "";
  return fmt::format("{} of {} {}{}{}, iteration {}, mode {}",
                     kCollectiveNames[static_cast<std::size_t>(call.kind)], call.count,
                     kTypeNames[static_cast<std::size_t>(call.type)], op, root, call.iteration,
                     mode_name);
}

std::uint64_t fingerprint(const CollectiveCall& call) {
  std::uint64_t state = 0;
  for (const std::uint64_t field :
       {static_cast<std::uint64_t>(call.kind), static_cast<std::uint64_t>(call.type),
        static_cast<std::uint64_t>(call.op), static_cast<std::uint64_t>(call.mode),
        static_cast<std::uint64_t>(call.root), static_cast<std::uint64_t>(call.count),
        static_cast<std::uint64_t>(call.iteration)})
    state = splitmix64(state + field);
  return state;
}

ValueType wire_type(const std::string& name) {
  if (name == "bf16") return ValueType::kBfloat16;
  return name == "fp16" ? ValueType::kFloat16 : ValueType::kFloat32;
}

}  // namespace gradsync
