#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "record/schema.h"

/// What the records of a journal hold, derived from the fields of record/schema.h. Iteration rows
/// are binary, since a job writes one every few milliseconds:
///
///   the fields of IterationHeader · u32 ranks · u32 buckets · a bucket: the fields of BucketShape
///   a rank: the fields of RankIteration · a bucket: the fields of BucketTimes
///
/// Numbers have 64 bits; flags and kinds of collective are u32. The length determines the version:
/// rows of earlier versions lack what later ones added. All other records are JSON objects; in them
/// NaN is null and infinities are "inf" and "-inf".
namespace gradsync {

/// The payload of a row of RunLists, a RunInfo, a RunEnd or an IterationRow.
template <typename Row>
std::vector<std::byte> encode(const Row& row);
template <>
std::vector<std::byte> encode(const IterationRow& row);

/// The inverse; nothing if the bytes are not such a record. Never throws for what they hold.
template <typename Row>
std::optional<Row> decode(std::span<const std::byte> payload);
template <>
std::optional<IterationRow> decode(std::span<const std::byte> payload);

}  // namespace gradsync
