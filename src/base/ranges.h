// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <concepts>
#include <functional>
#include <ranges>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

/// What the ranges of C++20 lack.
namespace gradsync {

/// Whether an element, or its projection, equals `value`. Not of texts, in which one looks for
/// texts.
template <std::ranges::input_range Range, typename Value, typename Projection = std::identity>
requires(!std::convertible_to<const Range&, std::string>) bool contains(
    const Range& range, const Value& value, Projection projection = {}) {
  return std::ranges::find(range, value, std::move(projection)) != std::ranges::end(range);
}

/// Appends `value` unless it is there.
template <typename Value>
void add_once(std::vector<Value>& list, const Value& value) {
  if (!contains(list, value)) list.push_back(value);
}

/// A member, or the result of a function, of each element.
template <std::ranges::input_range Range, typename Of>
auto each(const Range& range, Of of) {
  using Element = std::ranges::range_reference_t<const Range>;
  std::vector<std::remove_cvref_t<std::invoke_result_t<Of&, Element>>> all;
  if constexpr (std::ranges::sized_range<const Range>) all.reserve(std::ranges::size(range));
  for (auto&& one : range)
    all.push_back(std::invoke(of, std::forward<decltype(one)>(one)));
  return all;
}

}  // namespace gradsync
