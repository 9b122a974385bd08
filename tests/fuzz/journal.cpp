// SPDX-License-Identifier: BSD-3-Clause
#include "record/journal.h"

#include <cstring>

#include "base/hash.h"
#include "fuzz/targets.h"
#include "record/reader.h"

namespace gradsync::fuzz {

namespace {

template <typename Number>
void add(std::string& file, Number number) {
  file.append(reinterpret_cast<const char*>(&number), sizeof number);
}

std::uint32_t sum_of(std::string_view bytes) {
  return crc32c(std::as_bytes(std::span(bytes)));
}

/// A journal with sound sums whose records are made of the input, each of two bytes of length, one
/// of type and the payload: what hides behind a CRC is reached as well.
std::string framed(std::string_view input) {
  std::string file("\x89GSJ\r\n\x1A\n", 8);
  add(file, kJournalVersion);
  add(file, sum_of(file));
  while (input.size() >= 3) {
    std::uint16_t length = 0;
    std::memcpy(&length, input.data(), sizeof length);
    const std::uint32_t type = static_cast<unsigned char>(input[2]);
    const std::string_view payload = input.substr(3, length);
    input.remove_prefix(3 + payload.size());
    add(file, static_cast<std::uint32_t>(payload.size()));
    const std::size_t begin = file.size();
    add(file, type);
    file += payload;
    add(file, sum_of(std::string_view(file).substr(begin)));
  }
  return file;
}

}  // namespace

/// The first byte of the input: whether the rest is a journal or becomes one.
void journal(Input input) {
  if (input.empty()) return;
  const std::string_view rest = text_of(input.subspan(1));
  const InputFile file(input[0] == '=' ? rest : framed(rest));
  const auto run = open_run(file.path());
  read_all(*run);
}

}  // namespace gradsync::fuzz
