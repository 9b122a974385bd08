// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/plots/html.h"

#include <cstddef>

#include "base/parse.h"

namespace gradsync::report {

namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";

std::string escaped(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    default:
      return static_cast<unsigned char>(c) < ' ' || c == 0x7F ? " " : std::string(1, c);
  }
}

bool plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

}  // namespace

std::string html_text(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    if (length == 0)
      result += kReplacement;
    else if (length == 1)
      result += escaped(text[at]);
    else
      result += text.substr(at, length);
    at += length == 0 ? 1 : length;
  }
  return result;
}

std::string id_text(std::string_view text) {
  std::string result;
  for (const char c : text)
    result += plain(c) ? c : '-';
  return result;
}

}  // namespace gradsync::report
