#include <algorithm>

#include "checkpoint/checkpoint_file.h"
#include "checkpoint/checkpoint_info.h"
#include "checkpoint/safetensors.h"
#include "fuzz/targets.h"
#include "int8/float_model.h"
#include "int8/plan.h"
#include "support/error.h"

namespace gradsync::fuzz {

namespace {

/// The file with the digest that it should have, if it has a place for one.
std::string with_digest(std::string file) {
  try {
    const auto bytes = std::as_bytes(std::span(file));
    const std::uint64_t at = parse_safetensors(bytes).digest_at;
    const std::string digest = safetensors_digest(bytes, at);
    std::copy(digest.begin(), digest.end(), file.begin() + static_cast<std::ptrdiff_t>(at));
  } catch (const Error&) {
    // Refused without its digest being looked at.
  }
  return file;
}

/// As gradsync-train, gradsync-quantize and gradsync-report do with a checkpoint that is sound.
void use(const CheckpointFile& file) {
  for (const TensorPlace& tensor : file.tensors())
    if (file.find(tensor.info.name)) file.bytes(tensor);
  try {
    difference(from_metadata(file.metadata()), CheckpointInfo());
  } catch (const Error&) {
    // Then quantize may still read it.
  }
  quantize::float_bytes(file);
  quantize::read_float_model(file, quantize::make_plan(quantize::model_of(file)));
}

}  // namespace

/// The first byte of the input: whether the digest is as it stands in the file, or right.
void checkpoint(Input input) {
  if (input.empty()) return;
  const std::string content(text_of(input.subspan(1)));
  const InputFile input_file(input[0] == '=' ? content : with_digest(content));
  use(CheckpointFile(input_file.path()));
}

/// The layout of int8 files is read by what reads that of checkpoints.
void int8_file(Input input) {
  const auto bytes = std::as_bytes(input);
  const SafetensorsHeader header = parse_safetensors(bytes);
  for (const TensorPlace& tensor : header.tensors)
    bytes.subspan(static_cast<std::size_t>(tensor.begin),
                  static_cast<std::size_t>(tensor.end - tensor.begin));
  safetensors_digest(bytes, header.digest_at);
}

}  // namespace gradsync::fuzz
