// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "base/error.h"
#include "checkpoint/checkpoint_file.h"
#include "checkpoint/checkpoint_info.h"
#include "data/cifar10.h"
#include "fuzz/targets.h"
#include "quantize/float_model.h"
#include "quantize/plan.h"

namespace gradsync::fuzz {

/// The input: the manifest up to the first NUL, then the six files, each with one part of the rest.
void cifar10(Input input) {
  static const Folder folder;
  const std::string_view text = text_of(input);
  const std::string_view manifest = text.substr(0, text.find('\0'));
  const std::string_view images = text.substr(std::min(text.size(), manifest.size() + 1));
  const std::size_t part = images.size() / (kTrainFiles.size() + 1);
  folder.write(Manifest::kFile, manifest);
  for (std::size_t i = 0; i < kTrainFiles.size(); ++i)
    folder.write(kTrainFiles[i], images.substr(i * part, part));
  folder.write(kTestFile, images.substr(kTrainFiles.size() * part));
  const Cifar10 data(folder.path());
  for (const Split split : {Split::kTrain, Split::kTest})
    for (std::int64_t image = 0; image < std::min<std::int64_t>(data.size(split), 4); ++image) {
      data.pixels(split, image);
      data.label(split, image);
    }
  data.verify();
  data.class_counts(Split::kTrain);
}

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
