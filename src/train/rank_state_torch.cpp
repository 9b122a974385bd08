// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "options/modes.h"
#include "train/rank_state.h"

namespace gradsync {

namespace {

constexpr std::size_t kDigits = 16;
/// Distance of the seeds of two ranks: far from any seed that a user counts up to, so that ranks
/// and runs do not share one.
constexpr std::uint64_t kSeedOfRank = 0x9e3779b97f4a7c15u;

void broadcast_network(Exchange& exchange, Replica& replica) {
  const torch::NoGradGuard no_grad;
  for (auto& parameter : replica.parameters)
    exchange.run(Collective::broadcast(values_of(parameter), kRoot), Traffic::kParameters);
  for (auto& buffer : replica.buffers)
    if (buffer.is_floating_point())
      exchange.run(Collective::broadcast(values_of(buffer), kRoot), Traffic::kBuffers);
}

/// |mine − rank 0's| / |rank 0's|; 0 for two empty ones.
double distance_to_root(Exchange& exchange, const torch::Tensor& mine) {
  if (mine.numel() == 0) return 0;
  torch::Tensor root = mine.clone();
  exchange.session().broadcast(std::as_writable_bytes(values_of(root)));
  const auto length = root.to(torch::kFloat64).norm().item<double>();
  const auto away = (mine.to(torch::kFloat64) - root.to(torch::kFloat64)).norm().item<double>();
  return away == 0 ? 0 : away / length;
}

using Hashes = std::array<char, 2 * kDigits>;

Hashes hashes_of(const Replica& replica) {
  Hashes hashes;
  hashes.fill(' ');
  parameter_hash(replica).copy(hashes.data(), kDigits);
  buffer_hash(replica).copy(hashes.data() + kDigits, kDigits);
  return hashes;
}

std::string text_of(const char* begin) {
  const std::string text(begin, kDigits);
  return text.substr(0, text.find(' '));
}

}  // namespace

Replica first_replica(Exchange& exchange, const TrainOptions& options, Layout layout,
                      const torch::Device& device) {
  const auto rank = static_cast<std::uint64_t>(exchange.session().rank());
  const std::uint64_t seed =
      options.init == Init::kEqual ? options.seed : options.seed + rank * kSeedOfRank;
  Replica replica = make_replica(options.model, seed, layout, device);
  if (options.init == Init::kBroadcast) broadcast_network(exchange, replica);
  return replica;
}

bool replicas_may_differ(const TrainOptions& options, int ranks) {
  return ranks > 1 && (!mode_named(options.sync).exchanges || options.gradients_only ||
                       options.init == Init::kPerRank);
}

ReplicaRow compare_replicas(Exchange& exchange, const Replica& replica) {
  exchange.await(exchange.now().mark);
  const Hashes mine = hashes_of(replica);
  const std::vector<Hashes> all = exchange.session().gather(mine);
  std::byte differ{std::any_of(all.begin(), all.end(), [&](auto& one) { return one != mine; })};
  exchange.session().broadcast(std::span(&differ, 1));
  std::array<double, 2> away = {0, 0};
  if (differ != std::byte{0})
    away = {distance_to_root(exchange, flat_parameters(replica)),
            distance_to_root(exchange, flat_buffers(replica))};
  const auto distances = exchange.session().gather(away);
  ReplicaRow row;
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    row.ranks.push_back({text_of(all[rank].data()), text_of(all[rank].data() + kDigits),
                         distances[rank][0], distances[rank][1]});
  return row;
}

std::string distinct_hashes(const ReplicaRow& row) {
  std::string distinct;
  for (const RankReplica& rank : row.ranks)
    if (distinct.find(rank.parameter_hash) == std::string::npos)
      distinct += (distinct.empty() ? "" : " ") + rank.parameter_hash;
  return distinct;
}

namespace {

const std::string kSteps = "optimizer/steps", kLossScale = "optimizer/loss_scale";
const std::string kMode = "mode", kBuckets = "trainer/buckets", kClock = "trainer/epoch_clock";
const std::string kRunSummary = "trainer/run_summary", kEpochSummary = "trainer/epoch_summary";

torch::Tensor numbers(const std::vector<double>& values) {
  return torch::tensor(values, torch::kFloat64);
}

std::vector<double> numbers_in(const torch::Tensor& values) {
  return {values.data_ptr<double>(), values.data_ptr<double>() + values.numel()};
}

std::vector<std::int64_t> integers_in(const torch::Tensor& values) {
  return {values.data_ptr<std::int64_t>(), values.data_ptr<std::int64_t>() + values.numel()};
}

/// The tensors of the network, of the optimizer and of the mode, as views that can be read and
/// written.
std::vector<NamedTensor> network_views(const RankState& state) {
  std::vector<NamedTensor> views;
  const Replica& replica = state.replica;
  for (std::size_t i = 0; i < replica.parameters.size(); ++i)
    views.push_back({"parameters/" + replica.names[i], replica.parameters[i].detach()});
  const auto& moments = state.optimizer.moment_names();
  for (std::size_t which = 0; which < moments.size(); ++which)
    for (std::size_t i = 0; i < state.optimizer.stepped().parameters.size(); ++i)
      views.push_back({moments[which] + "/" + state.optimizer.stepped().names[i],
                       state.optimizer.moment(which, i)});
  for (std::size_t i = 0; i < replica.buffers.size(); ++i)
    views.push_back({"buffers/" + replica.buffer_names[i], replica.buffers[i]});
  for (const NamedTensor& carried : state.mode.carried())
    views.push_back({kMode + "/" + carried.name, carried.values});
  return views;
}

std::vector<std::int64_t> bucket_numbers(const std::vector<BucketShape>& buckets) {
  std::vector<std::int64_t> all;
  for (const BucketShape& bucket : buckets)
    all.insert(all.end(), {bucket.bytes, static_cast<std::int64_t>(bucket.kind)});
  return all;
}

[[noreturn]] void refuse(const std::string& name, const std::string& what) {
  throw Error(ExitCode::kBadData, fmt::format("the checkpoint's '{}' {}", name, what),
              "resume with the program that wrote it, or begin a new run in another --output");
}

const torch::Tensor* find(const std::vector<NamedTensor>& snapshot, const std::string& name,
                          torch::ScalarType type) {
  const auto found = std::find_if(snapshot.begin(), snapshot.end(),
                                  [&](const NamedTensor& one) { return one.name == name; });
  if (found == snapshot.end()) return nullptr;
  if (found->values.scalar_type() != type) refuse(name, "is of another type");
  return &found->values;
}

const torch::Tensor& required(const std::vector<NamedTensor>& snapshot, const std::string& name,
                              torch::ScalarType type) {
  const torch::Tensor* found = find(snapshot, name, type);
  if (found == nullptr) refuse(name, "is missing");
  return *found;
}

std::vector<BucketShape> buckets_in(const std::vector<std::int64_t>& numbers) {
  std::vector<BucketShape> buckets;
  for (std::size_t i = 0; i + 1 < numbers.size(); i += 2) {
    if (numbers[i + 1] < 0 || numbers[i + 1] >= static_cast<std::int64_t>(kCollectiveNames.size()))
      refuse(kBuckets, "holds an unknown collective");
    buckets.push_back({numbers[i], static_cast<CollectiveKind>(numbers[i + 1])});
  }
  return buckets;
}

torch::Tensor loss_scale_of(const Optimizer& optimizer) {
  const StepState now = optimizer.read_state();
  return numbers({now.loss_scale.scale, static_cast<double>(now.loss_scale.good_steps),
                  static_cast<double>(now.skipped_steps)});
}

void restore_loss_scale(Optimizer& optimizer, const std::vector<double>& numbers) {
  if (numbers.size() != 3) refuse(kLossScale, "has another shape");
  StepState state = optimizer.read_state();
  state.loss_scale = {static_cast<float>(numbers[0]), static_cast<int>(numbers[1])};
  state.skipped_steps = static_cast<std::int64_t>(numbers[2]);
  optimizer.write_state(state);
}

}  // namespace

std::vector<NamedTensor> snapshot(const RankState& state) {
  std::vector<NamedTensor> all;
  for (const NamedTensor& view : network_views(state))
    all.push_back({view.name, view.values.contiguous().cpu()});
  all.push_back({kSteps, torch::tensor({state.optimizer.steps()}, torch::kInt64)});
  if (state.optimizer.scales_loss()) all.push_back({kLossScale, loss_scale_of(state.optimizer)});
  all.push_back({kRunSummary, numbers(state.run_summary.state()), true});
  all.push_back({kEpochSummary, numbers(state.epoch_summary.state()), true});
  all.push_back(
      {kClock, numbers({state.epoch_clock.training_s, state.epoch_clock.running_s()}), true});
  if (!state.buckets.empty())
    all.push_back({kBuckets, torch::tensor(bucket_numbers(state.buckets), torch::kInt64)});
  if (const auto order = state.mode.state(); !order.empty())
    all.push_back({kMode, torch::tensor(order, torch::kInt64)});
  return all;
}

void restore(const RankState& state, const std::vector<NamedTensor>& snapshot) {
  const torch::NoGradGuard no_grad;
  for (NamedTensor& view : network_views(state)) {
    const torch::Tensor& values = required(snapshot, view.name, view.values.scalar_type());
    if (values.sizes() != view.values.sizes()) refuse(view.name, "has another shape");
    view.values.copy_(values);
  }
  state.optimizer.steps() = integers_in(required(snapshot, kSteps, torch::kInt64)).at(0);
  if (state.optimizer.scales_loss())
    restore_loss_scale(state.optimizer,
                       numbers_in(required(snapshot, kLossScale, torch::kFloat64)));
  state.run_summary.restore(numbers_in(required(snapshot, kRunSummary, torch::kFloat64)));
  state.epoch_summary.restore(numbers_in(required(snapshot, kEpochSummary, torch::kFloat64)));
  const auto clock = numbers_in(required(snapshot, kClock, torch::kFloat64));
  if (clock.size() != 2) refuse(kClock, "has another shape");
  state.epoch_clock.training_s = clock[0];
  state.epoch_clock.before_s = clock[1];
  if (const auto* buckets = find(snapshot, kBuckets, torch::kInt64))
    state.buckets = buckets_in(integers_in(*buckets));
  if (const auto* order = find(snapshot, kMode, torch::kInt64))
    state.mode.restore(integers_in(*order));
}

namespace {

struct TensorType {
  const char* name;  ///< in the file
  torch::ScalarType type;
};
constexpr TensorType kTypes[] = {{"F64", torch::kFloat64}, {"I64", torch::kInt64},
                                 {"F32", torch::kFloat32}, {"I32", torch::kInt32},
                                 {"I16", torch::kInt16},   {"I8", torch::kInt8},
                                 {"U8", torch::kUInt8},    {"BOOL", torch::kBool}};

std::string type_name(const NamedTensor& tensor) {
  for (const TensorType& one : kTypes)
    if (one.type == tensor.values.scalar_type()) return one.name;
  throw Error(ExitCode::kInternal, fmt::format("'{}' is {}, which no checkpoint holds", tensor.name,
                                               c10::toString(tensor.values.scalar_type())));
}

torch::ScalarType type_of(const TensorInfo& info) {
  for (const TensorType& one : kTypes)
    if (info.dtype == one.name) return one.type;
  throw Error(ExitCode::kBadData,
              fmt::format("the checkpoint's '{}' is of the type {}", info.name, info.dtype));
}

std::span<std::byte> bytes_of(const torch::Tensor& values) {
  return {static_cast<std::byte*>(values.data_ptr()), values.nbytes()};
}

std::string name_of(int rank, const std::string& name) {
  return rank == kRoot ? name : fmt::format("rank{}/{}", rank, name);
}

/// One tensor of one rank, as it lies in the file.
struct Piece {
  int rank;
  std::size_t tensor;
};

/// The tensors in the file, in its order, the same on all ranks. Larger values come first, so all
/// are aligned.
using Pieces = std::vector<Piece>;

/// [rank][tensor]: whether it is not the same as that of rank 0.
class Differences {
 public:
  Differences(std::size_t ranks, std::size_t tensors)
      : tensors_(tensors), flags_(ranks * tensors, std::byte{0}) {}

  void set(int rank, std::size_t tensor) { flags_[at(rank, tensor)] = std::byte{1}; }
  bool operator()(int rank, std::size_t tensor) const {
    return flags_[at(rank, tensor)] != std::byte{0};
  }
  std::span<std::byte> bytes() { return flags_; }

 private:
  std::size_t at(int rank, std::size_t tensor) const {
    return static_cast<std::size_t>(rank) * tensors_ + tensor;
  }
  std::size_t tensors_;
  std::vector<std::byte> flags_;
};

Differences compare(Exchange& exchange, const std::vector<NamedTensor>& mine, bool root_only) {
  const auto ranks = static_cast<std::size_t>(exchange.session().size());
  Differences differences(ranks, mine.size());
  if (ranks == 1) return differences;
  std::string digests;
  for (const NamedTensor& tensor : mine) {
    Sha256 digest;
    digest.update(bytes_of(tensor.values));
    digests += digest.hex();
  }
  const std::size_t length = digests.size() / mine.size();
  const std::vector<char> all = exchange.session().gather(std::span(std::as_const(digests)));
  const std::string_view text(all.data(), all.size());
  for (std::size_t at = 0; at < all.size(); at += length) {
    const std::size_t in_rank = at % digests.size();
    const std::size_t tensor = in_rank / length;
    const bool counts = !root_only || mine[tensor].of_rank;
    if (counts && text.substr(at, length) != text.substr(in_rank, length))
      differences.set(static_cast<int>(at / digests.size()), tensor);
  }
  exchange.session().broadcast(differences.bytes());
  return differences;
}

Pieces pieces_of(const std::vector<NamedTensor>& mine, int ranks, const Differences& differs) {
  Pieces pieces;
  for (const std::int64_t bytes : {8, 4, 2, 1})
    for (int rank = 0; rank < ranks; ++rank)
      for (std::size_t i = 0; i < mine.size(); ++i)
        if (mine[i].values.element_size() == bytes && (rank == kRoot || differs(rank, i)))
          pieces.push_back({rank, i});
  return pieces;
}

/// Rank 0 takes the pieces in the order of the file.
void write_pieces(Exchange& exchange, const std::vector<NamedTensor>& mine, const Pieces& pieces,
                  CheckpointWriter& writer) {
  std::vector<std::byte> received;
  for (const Piece& piece : pieces) {
    const auto own = bytes_of(mine[piece.tensor].values);
    if (piece.rank == kRoot) {
      writer.write(own);
      continue;
    }
    received.resize(own.size());
    exchange.session().move(received, piece.rank, kRoot);
    writer.write(received);
  }
}

void send_pieces(Exchange& exchange, const std::vector<NamedTensor>& mine, const Pieces& pieces) {
  for (const Piece& piece : pieces)
    if (piece.rank != kRoot)
      exchange.session().move(bytes_of(mine[piece.tensor].values), piece.rank, kRoot);
}

/// What rank 0 has in the file, told to all ranks before the values come.
std::vector<TensorInfo> broadcast_infos(Exchange& exchange, const CheckpointFile* file) {
  nlohmann::json told = nlohmann::json::array();
  if (file)
    for (const TensorPlace& place : file->tensors())
      if (!place.info.name.starts_with("rank"))
        told.push_back({place.info.name, place.info.dtype, place.info.shape});
  std::string text = told.dump();
  exchange.session().broadcast(text);
  std::vector<TensorInfo> infos;
  for (const auto& one : nlohmann::json::parse(text))
    infos.push_back({one[0].get<std::string>(), one[1].get<std::string>(),
                     one[2].get<std::vector<std::int64_t>>()});
  return infos;
}

/// The place of a rank's own tensor, on rank 0; null if it has none of its own.
const TensorPlace* own_place(const CheckpointFile& file, int rank, const NamedTensor& like) {
  const TensorPlace* place = file.find(name_of(rank, like.name));
  if (place && tensor_bytes(place->info) != like.values.nbytes())
    throw Error(ExitCode::kBadData,
                fmt::format("checkpoint '{}': '{}' has another shape than that of rank 0",
                            file.path().string(), place->info.name));
  return place;
}

Differences broadcast_differences(Exchange& exchange, const CheckpointFile* file,
                                  const std::vector<NamedTensor>& tensors) {
  Differences differences(static_cast<std::size_t>(exchange.session().size()), tensors.size());
  if (file)
    for (int rank = 1; rank < exchange.session().size(); ++rank)
      for (std::size_t i = 0; i < tensors.size(); ++i)
        if (own_place(*file, rank, tensors[i])) differences.set(rank, i);
  exchange.session().broadcast(differences.bytes());
  return differences;
}

/// Each rank's own tensors, from rank 0.
void hand_out(Exchange& exchange, const CheckpointFile* file, std::vector<NamedTensor>& tensors) {
  const Differences differs = broadcast_differences(exchange, file, tensors);
  std::vector<std::byte> sent;
  for (int rank = 1; rank < exchange.session().size(); ++rank)
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (!differs(rank, i)) continue;
      if (file) {
        const auto bytes = file->bytes(*own_place(*file, rank, tensors[i]));
        sent.assign(bytes.begin(), bytes.end());
      }
      exchange.session().move(file ? std::span(sent) : bytes_of(tensors[i].values), kRoot, rank);
    }
}

}  // namespace

void write_checkpoint(Exchange& exchange, const std::vector<NamedTensor>& mine,
                      const CheckpointInfo& info, const std::filesystem::path& target,
                      bool root_only) {
  const Differences differences = compare(exchange, mine, root_only);
  const Pieces pieces = pieces_of(mine, exchange.session().size(), differences);
  if (exchange.session().rank() != kRoot) return send_pieces(exchange, mine, pieces);
  std::vector<TensorInfo> infos;
  for (const Piece& piece : pieces) {
    const NamedTensor& tensor = mine[piece.tensor];
    infos.push_back(
        {name_of(piece.rank, tensor.name), type_name(tensor), tensor.values.sizes().vec()});
  }
  CheckpointWriter writer(target, infos, to_metadata(info));
  write_pieces(exchange, mine, pieces, writer);
  writer.finish();
}

std::vector<NamedTensor> read_checkpoint(Exchange& exchange, const CheckpointFile* file) {
  std::vector<NamedTensor> tensors;
  for (const TensorInfo& info : broadcast_infos(exchange, file)) {
    const torch::Tensor values = torch::empty(info.shape, type_of(info));
    if (file) {
      const auto bytes = file->bytes(*file->find(info.name));
      std::copy(bytes.begin(), bytes.end(), bytes_of(values).begin());
    }
    exchange.session().broadcast(bytes_of(values));
    tensors.push_back({info.name, values});
  }
  hand_out(exchange, file, tensors);
  return tensors;
}

}  // namespace gradsync
