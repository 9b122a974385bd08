#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "train/checkpoint.h"

namespace gradsync {

namespace {

struct ValueType {
  const char* name;  ///< in the file
  torch::ScalarType type;
};
constexpr ValueType kTypes[] = {{"F64", torch::kFloat64}, {"I64", torch::kInt64},
                                {"F32", torch::kFloat32}, {"I32", torch::kInt32},
                                {"I16", torch::kInt16},   {"I8", torch::kInt8},
                                {"U8", torch::kUInt8},    {"BOOL", torch::kBool}};

std::string type_name(const NamedTensor& tensor) {
  for (const ValueType& one : kTypes)
    if (one.type == tensor.values.scalar_type()) return one.name;
  throw Error(ExitCode::kInternal, fmt::format("'{}' is {}, which no checkpoint holds", tensor.name,
                                               c10::toString(tensor.values.scalar_type())));
}

torch::ScalarType type_of(const TensorInfo& info) {
  for (const ValueType& one : kTypes)
    if (info.dtype == one.name) return one.type;
  throw Error(ExitCode::kBadData,
              fmt::format("the checkpoint's '{}' is of the type {}", info.name, info.dtype));
}

TensorInfo info_of(const NamedTensor& tensor) {
  return {tensor.name, type_name(tensor), tensor.values.sizes().vec()};
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

/// Which tensors lie in the file, in its order, the same on all ranks. Larger values come first: so
/// all are aligned.
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
  std::string all(exchange.session().rank() == kRoot ? ranks * digests.size() : 0, '\0');
  exchange.session().gather(std::as_bytes(std::span(digests)),
                            std::as_writable_bytes(std::span(all)));
  const std::string_view text = all;
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

std::string broadcast_text(Exchange& exchange, std::string text) {
  std::uint64_t size = text.size();
  exchange.session().broadcast(std::as_writable_bytes(std::span(&size, 1)));
  text.resize(static_cast<std::size_t>(size));
  exchange.session().broadcast(std::as_writable_bytes(std::span(text)));
  return text;
}

/// What rank 0 has in the file, told to all ranks before the values come.
std::vector<TensorInfo> broadcast_infos(Exchange& exchange, const CheckpointFile* file) {
  nlohmann::json told = nlohmann::json::array();
  if (file)
    for (const TensorPlace& place : file->tensors())
      if (!place.info.name.starts_with("rank"))
        told.push_back({place.info.name, place.info.dtype, place.info.shape});
  std::vector<TensorInfo> infos;
  for (const auto& one : nlohmann::json::parse(broadcast_text(exchange, told.dump())))
    infos.push_back({one[0].get<std::string>(), one[1].get<std::string>(),
                     one[2].get<std::vector<std::int64_t>>()});
  return infos;
}

/// On rank 0: the bytes of a rank's own tensor, nothing if it has none of its own.
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
    infos.push_back(info_of(mine[piece.tensor]));
    infos.back().name = name_of(piece.rank, infos.back().name);
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
