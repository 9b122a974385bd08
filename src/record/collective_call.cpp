#include "record/collective_call.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace gradsync {

namespace {

constexpr std::array<std::string_view, 7> kTypeNames = {"float32", "bfloat16", "float16", "byte",
                                                        "float64", "int8",     "int32"};

std::uint64_t mixed(std::uint64_t state, std::uint64_t value) {
  state += value + 0x9e3779b97f4a7c15u;
  state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
  state = (state ^ (state >> 27)) * 0x94d049bb133111ebu;
  return state ^ (state >> 31);
}

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
    state = mixed(state, field);
  return state;
}

std::int64_t value_bytes(ValueType type) {
  switch (type) {
    case ValueType::kFloat64:
      return 8;
    case ValueType::kFloat32:
    case ValueType::kInt32:
      return 4;
    case ValueType::kBfloat16:
    case ValueType::kFloat16:
      return 2;
    case ValueType::kByte:
    case ValueType::kInt8:
      return 1;
  }
  return 0;
}

ValueType wire_type(const std::string& name) {
  if (name == "bf16") return ValueType::kBfloat16;
  return name == "fp16" ? ValueType::kFloat16 : ValueType::kFloat32;
}

std::int64_t traffic_bytes(CollectiveKind kind, std::int64_t bytes, int rank, int ranks, int root) {
  const LinkBytes link = link_bytes(kind, bytes, rank, ranks, root);
  return std::max(link.sent, link.received);
}

namespace {

/// n, where something crosses a link.
double several(double ranks) {
  return ranks > 1 ? ranks : kNotMeasured;
}

}  // namespace

double message_bytes(CollectiveKind kind, double payload_bytes, double ranks) {
  const bool total_over_ranks =
      kind == CollectiveKind::kGather || kind == CollectiveKind::kScatter ||
      kind == CollectiveKind::kAllGather || kind == CollectiveKind::kReduceScatter ||
      kind == CollectiveKind::kAllToAll;
  return total_over_ranks ? ranks * payload_bytes : payload_bytes;
}

double algbw(double bytes, double time_s) {
  return bytes / positive(time_s);
}

double busbw_factor(CollectiveKind kind, double ranks) {
  const double n = several(ranks);
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return 2 * (n - 1) / n;
    case CollectiveKind::kGather:
    case CollectiveKind::kScatter:
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
      return (n - 1) / n;
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduce:
    case CollectiveKind::kSendReceive:
      return n / n;  // 1, NaN for one rank
    case CollectiveKind::kBarrier:
      break;
  }
  return kNotMeasured;
}

double busbw(CollectiveKind kind, double payload_bytes, double ranks, double time_s) {
  return algbw(message_bytes(kind, payload_bytes, ranks), time_s) * busbw_factor(kind, ranks);
}

LinkBytes link_bytes(CollectiveKind kind, std::int64_t bytes, int rank, int ranks, int root) {
  if (ranks == 1) return {};
  const std::int64_t others = (ranks - 1) * bytes;
  const bool here = rank == root;
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return {2 * others / ranks, 2 * others / ranks};
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kScatter:
      return here ? LinkBytes{others, 0} : LinkBytes{0, bytes};
    case CollectiveKind::kReduce:
    case CollectiveKind::kGather:
      return here ? LinkBytes{0, others} : LinkBytes{bytes, 0};
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
      return {others, others};
    case CollectiveKind::kSendReceive:
      return {bytes, bytes};
    case CollectiveKind::kBarrier:
      return {};
  }
  return {};
}

void Ledger::add(Traffic category, LinkBytes bytes) {
  const auto at = static_cast<std::size_t>(category);
  total_.sent_bytes[at] += bytes.sent;
  total_.received_bytes[at] += bytes.received;
  ++total_.calls[at];
}

void Ledger::add(const RankTraffic& moved) {
  for (std::size_t at = 0; at < kTrafficCategories; ++at) {
    total_.sent_bytes[at] += moved.sent_bytes[at];
    total_.received_bytes[at] += moved.received_bytes[at];
    total_.calls[at] += moved.calls[at];
  }
}

RankTraffic Ledger::take_back(const RankTraffic& before) {
  RankTraffic since = std::exchange(total_, before);
  for (std::size_t at = 0; at < kTrafficCategories; ++at) {
    since.sent_bytes[at] -= before.sent_bytes[at];
    since.received_bytes[at] -= before.received_bytes[at];
    since.calls[at] -= before.calls[at];
  }
  return since;
}

}  // namespace gradsync
