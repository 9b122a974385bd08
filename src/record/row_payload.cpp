#include "record/bytes.h"
#include "record/journal.h"
#include "record/journal_payload.h"

namespace gradsync {

namespace {

// What stands for a value.
double stored(double value) {
  return value;
}
std::int64_t stored(std::int64_t value) {
  return value;
}
std::uint32_t stored(bool value) {
  return static_cast<std::uint32_t>(value);
}
std::uint32_t stored(CollectiveKind value) {
  return static_cast<std::uint32_t>(value);
}

/// Appends the values of a row. Its lists are written behind it, in an order of their own.
class ByteFields {
 public:
  explicit ByteFields(ByteWriter& writer) : writer_(writer) {}

  template <typename Value>
  void operator()(const Field&, const Value& value) {
    writer_.put(stored(value));
  }
  template <typename Row>
  void operator()(const Nested&, const std::vector<Row>&) {}

 private:
  ByteWriter& writer_;
};

/// Takes the values that a version of the journal holds; the others stay as they are.
class FieldsOfBytes {
 public:
  FieldsOfBytes(ByteReader& reader, int version) : reader_(reader), version_(version) {}

  template <typename Value>
  void operator()(const Field& field, Value& value) {
    if (field.since > version_) return;
    const auto number = reader_.get<decltype(stored(value))>();
    if constexpr (std::is_same_v<Value, CollectiveKind>)
      sound_ = sound_ && number < kCollectiveNames.size();
    value = static_cast<Value>(number);
  }
  template <typename Row>
  void operator()(const Nested&, std::vector<Row>&) {}

  /// Whether all kinds of collectives are known.
  bool sound() const { return sound_; }

 private:
  ByteReader& reader_;
  int version_;
  bool sound_ = true;
};

/// Adds up the bytes of the values of a row.
struct FieldBytes {
  int version;
  std::size_t bytes = 0;

  template <typename Value>
  void operator()(const Field& field, const Value& value) {
    if (field.since <= version) bytes += sizeof(stored(value));
  }
  template <typename Row>
  void operator()(const Nested&, const std::vector<Row>&) {}
};

template <typename Row>
std::size_t bytes_of(int version) {
  FieldBytes sum{version};
  const Row row{};
  visit_fields(row, sum);
  return sum.bytes;
}

std::size_t payload_bytes(std::size_t ranks, std::size_t buckets, int version) {
  const std::size_t rank_bytes =
      bytes_of<RankIteration>(version) + buckets * bytes_of<BucketTimes>(version);
  return bytes_of<IterationHeader>(version) + 2 * sizeof(std::uint32_t) +
         buckets * bytes_of<BucketShape>(version) + ranks * rank_bytes;
}

constexpr int kVersion = static_cast<int>(kJournalVersion);

}  // namespace

template <>
std::vector<std::byte> encode(const IterationRow& row) {
  ByteWriter writer;
  writer.reserve(payload_bytes(row.ranks.size(), row.buckets.size(), kVersion));
  ByteFields fields(writer);
  visit_fields(row.header(), fields);
  writer.put(static_cast<std::uint32_t>(row.ranks.size()));
  writer.put(static_cast<std::uint32_t>(row.buckets.size()));
  for (const BucketShape& shape : row.buckets)
    visit_fields(shape, fields);
  for (const RankIteration& rank : row.ranks) {
    visit_fields(rank, fields);
    for (const BucketTimes& times : rank.buckets)
      visit_fields(times, fields);
  }
  return writer.take();
}

template <>
std::optional<IterationRow> decode(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  IterationRow row;
  FieldsOfBytes header(reader, kVersion);
  visit_fields(row.header(), header);
  const std::size_t ranks = reader.get<std::uint32_t>();
  const std::size_t buckets = reader.get<std::uint32_t>();
  // Before anything is allocated: the counts must be those of a payload of just this size.
  if (!reader.complete() || ranks > payload.size() || buckets > payload.size()) return std::nullopt;
  int version = kVersion;
  while (payload_bytes(ranks, buckets, version) != payload.size())
    if (--version < static_cast<int>(kOldestJournalVersion)) return std::nullopt;
  FieldsOfBytes fields(reader, version);
  row.buckets.resize(buckets);
  for (BucketShape& shape : row.buckets)
    visit_fields(shape, fields);
  if (!fields.sound()) return std::nullopt;
  row.ranks.resize(ranks);
  for (RankIteration& rank : row.ranks) {
    visit_fields(rank, fields);
    rank.buckets.resize(buckets);
    for (BucketTimes& times : rank.buckets)
      visit_fields(times, fields);
  }
  return row;
}

}  // namespace gradsync
