#include "record/bytes.h"
#include "record/journal_payload.h"

namespace gradsync {

namespace {

constexpr std::size_t kRowBytes = 4 * 8 + 8 + 3 * 4;
constexpr std::size_t kShapeBytes = 8 + 4;
constexpr std::size_t kRankBytes = 8 + kPhases * 8 + 8 + 8 + kRowCategories * 8;
/// Of a bucket: version 2 of the journal had no arrival.
constexpr std::size_t kTimesBytes = 4 * 8, kTimesBytes2 = 3 * 8;

void put(ByteWriter& writer, const RankIteration& rank) {
  writer.put(rank.begin_s);
  for (const double time_s : rank.time_s)
    writer.put(time_s);
  writer.put(rank.loss);
  writer.put(rank.correct);
  for (const std::int64_t bytes : rank.traffic_bytes)
    writer.put(bytes);
  for (const BucketTimes& bucket : rank.buckets) {
    writer.put(bucket.ready_s);
    writer.put(bucket.start_s);
    writer.put(bucket.end_s);
    writer.put(bucket.arrival_s);
  }
}

RankIteration get_rank(ByteReader& reader, std::size_t buckets, bool arrivals) {
  RankIteration rank;
  rank.begin_s = reader.get<double>();
  for (double& time_s : rank.time_s)
    time_s = reader.get<double>();
  rank.loss = reader.get<double>();
  rank.correct = reader.get<std::int64_t>();
  for (std::int64_t& bytes : rank.traffic_bytes)
    bytes = reader.get<std::int64_t>();
  rank.buckets.resize(buckets);
  for (BucketTimes& bucket : rank.buckets) {
    bucket.ready_s = reader.get<double>();
    bucket.start_s = reader.get<double>();
    bucket.end_s = reader.get<double>();
    if (arrivals) bucket.arrival_s = reader.get<double>();
  }
  return rank;
}

std::size_t payload_bytes(std::size_t ranks, std::size_t buckets, std::size_t times_bytes) {
  return kRowBytes + buckets * kShapeBytes + ranks * (kRankBytes + buckets * times_bytes);
}

bool get_shapes(ByteReader& reader, std::vector<BucketShape>& shapes) {
  for (BucketShape& shape : shapes) {
    shape.bytes = reader.get<std::int64_t>();
    const auto kind = reader.get<std::uint32_t>();
    if (kind >= kCollectiveNames.size()) return false;
    shape.kind = static_cast<CollectiveKind>(kind);
  }
  return true;
}

}  // namespace

std::vector<std::byte> encode(const IterationRow& row) {
  ByteWriter writer;
  writer.reserve(payload_bytes(row.ranks.size(), row.buckets.size(), kTimesBytes));
  for (const std::int64_t value : {row.iteration, row.epoch, row.step, row.samples})
    writer.put(value);
  writer.put(row.learning_rate);
  writer.put(static_cast<std::uint32_t>(row.warmup));
  writer.put(static_cast<std::uint32_t>(row.ranks.size()));
  writer.put(static_cast<std::uint32_t>(row.buckets.size()));
  for (const BucketShape& shape : row.buckets) {
    writer.put(shape.bytes);
    writer.put(static_cast<std::uint32_t>(shape.kind));
  }
  for (const RankIteration& rank : row.ranks)
    put(writer, rank);
  return writer.take();
}

std::optional<IterationRow> decode_iteration(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  IterationRow row;
  row.iteration = reader.get<std::int64_t>();
  row.epoch = reader.get<std::int64_t>();
  row.step = reader.get<std::int64_t>();
  row.samples = reader.get<std::int64_t>();
  row.learning_rate = reader.get<double>();
  row.warmup = reader.get<std::uint32_t>() != 0;
  const std::size_t ranks = reader.get<std::uint32_t>();
  const std::size_t buckets = reader.get<std::uint32_t>();
  // Before anything is allocated: the counts must be those of a payload of just this size.
  if (!reader.complete() || ranks > payload.size() || buckets > payload.size()) return std::nullopt;
  const bool arrivals = payload_bytes(ranks, buckets, kTimesBytes) == payload.size();
  if (!arrivals && payload_bytes(ranks, buckets, kTimesBytes2) != payload.size())
    return std::nullopt;
  row.buckets.resize(buckets);
  if (!get_shapes(reader, row.buckets)) return std::nullopt;
  row.ranks.reserve(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    row.ranks.push_back(get_rank(reader, buckets, arrivals));
  return row;
}

}  // namespace gradsync
