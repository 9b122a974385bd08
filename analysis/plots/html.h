// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

namespace gradsync::report {

/// `text` with &, <, >, " and ' as entities and control characters as spaces, for text and for
/// values of attributes in double quotes. What is not UTF-8 becomes U+FFFD.
std::string html_text(std::string_view text);

/// `text` as a part of an id or of a claim: characters other than letters, digits, '-' and '_'
/// become '-'.
std::string id_text(std::string_view text);

}  // namespace gradsync::report
