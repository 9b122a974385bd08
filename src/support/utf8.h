#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gradsync {

/// Bytes of the UTF-8 character at `at`, 0 if there is none (RFC 3629, table 3-7 of Unicode).
std::size_t utf8_length(std::string_view text, std::size_t at);

bool is_utf8(std::string_view text);

/// `text` with every byte that is no part of a UTF-8 character as "\\xff", for messages.
std::string with_escaped_bytes(std::string_view text);

}  // namespace gradsync
