// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

/// The text format of job and site files: one `key = value` a line, `#` at the start of a line or
/// behind a blank begins a comment. A value in double quotes is taken as it is, with \" \\ and \n.
namespace gradsync {

struct KeyValue {
  std::string key, value;
  std::string where;    ///< "jobs/demo.cfg:12"
  bool quoted = false;  ///< stood in quotes: never a list
};

/// The entries in the order of the text; `name` is for the messages. Keys may repeat: what that
/// means is the caller's to decide. Throws Error kUsage with `name`:line.
std::vector<KeyValue> parse_key_values(std::string_view text, const std::string& name);

/// The entries of a file. Throws also kNoInput if it is missing, kInputOutput if it cannot be read.
std::vector<KeyValue> read_key_values(const std::filesystem::path& file);

/// `value` as it must stand in such a file to be read back unchanged: in quotes where needed.
std::string quoted_where_needed(const std::string& value);

/// Throws Error kUsage if a key of `entries` appears twice, apart from those in `repeatable`.
void require_unique_keys(const std::vector<KeyValue>& entries,
                         const std::vector<std::string>& repeatable);

}  // namespace gradsync
