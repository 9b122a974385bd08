#include "checkpoint/safetensors.h"
#include "fuzz/targets.h"

namespace gradsync::fuzz {

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
