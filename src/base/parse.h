// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

/// Strict reading of values that people write, and the writing of values for people.
/// All `parse_` functions take the whole text: blanks or anything left over is an error. They throw
/// Error kUsage whose what() says why, as the end of a sentence ("\"12x\" is not a whole number");
/// the caller adds where the text is from.

namespace gradsync {

/// A whole number in decimal, with an optional minus sign, that fits 64 bits.
std::int64_t parse_integer(std::string_view text);

/// A finite number in decimal: 0.1, 5e-4, -3. NaN, infinity and what does not fit are errors.
double parse_number(std::string_view text);

/// A size in bytes: a number >= 0 with B, kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB
/// (powers of 1024); a bare number counts bytes. A bare K, M, G or T is an error that names both
/// readings. The result is a whole number of bytes that fits 64 bits.
std::int64_t parse_size(std::string_view text);

/// Beyond the memory of a host: a slip of the pen.
inline constexpr std::int64_t kLargestMessageBytes = std::int64_t{1} << 40;

/// `first`, `first`·factor, … up to `last`; a `step` above 0 adds that instead. In bytes, rounded
/// up to whole float32 values. Throws Error kUsage for an empty or an endless range.
std::vector<std::int64_t> size_range(std::int64_t first, std::int64_t last, double factor,
                                     std::int64_t step);

/// The sizes of a text "1KiB:64MiB": powers of two from the first to the last. Throws Error kUsage.
std::vector<std::int64_t> parse_size_sweep(const std::string& text);

/// Rounded up to whole values.
std::int64_t whole_value_bytes(std::int64_t bytes, std::int64_t value_bytes = 4);

/// A time in seconds: a number >= 0 with ms, s, m (minutes) or h; a bare number counts seconds.
double parse_duration(std::string_view text);

/// true, yes, on, 1 or false, no, off, 0.
bool parse_switch(std::string_view text);

/// `text` without blanks (space, tab, carriage return) at both ends.
std::string_view trimmed(std::string_view text);

/// The parts of `text` between `separator`, each trimmed; an empty text has one empty part.
std::vector<std::string> split_list(std::string_view text, char separator);

/// "1 rank", "2 ranks"; `what` is in the singular.
std::string count_text(std::int64_t count, std::string_view what);

/// For people: "512 B", "25 MiB", "1.5 KiB"; units are powers of 1024.
std::string format_bytes(std::int64_t bytes);

/// For people: "250 ms", "12.3 s", "2 min 5 s", "1 h 2 min"; NaN is "n/a".
std::string format_duration(double seconds);

/// The entry of `candidates` nearest to `text` by edit distance (capitals and _ for - cost nothing,
/// a beginning of an entry counts as near), or "" if none is near.
std::string nearest(std::string_view text, const std::vector<std::string>& candidates);

/// "; did you mean X?" for the nearest candidate, or "".
std::string did_you_mean(std::string_view text, const std::vector<std::string>& candidates);

/// An Error kUsage: "'sumary' is no table; did you mean summary?", with all names as its fix.
Error no_such(std::string_view what, std::string_view name, const std::vector<std::string>& names);

/// Bytes of the UTF-8 character at `at`, 0 if there is none (RFC 3629, table 3-7 of Unicode).
std::size_t utf8_length(std::string_view text, std::size_t at);

bool is_utf8(std::string_view text);

/// `text` with every byte that is no part of a UTF-8 character as "\\xff", for messages.
std::string with_escaped_bytes(std::string_view text);

/// The same, and control characters except line feed and tab as "\\x1b": what others wrote does
/// nothing to a terminal.
std::string printable(std::string_view text);

/// printable(text) for a message: of a long text the first 80 characters, and its length.
std::string excerpt(std::string_view text);

/// `text` as one word of a POSIX shell.
std::string shell_quoted(const std::string& text);

/// The time of day in ISO 8601, UTC, to the second: "2026-11-21T05:43:00Z".
std::string utc_now();

}  // namespace gradsync
