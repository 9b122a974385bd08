#include "record/statement.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace gradsync {

namespace {

using Json = nlohmann::json;

/// "lr = 0.1"; one list may be shorter.
std::string stated_at(const Json& values, std::size_t i) {
  if (i >= values.size()) return "nothing more";
  return fmt::format("{} = {}", values[i][0].get<std::string>(), values[i][1].get<std::string>());
}

/// The first place where the two differ, or the length of both.
std::size_t first_difference(const Json& a, const Json& b) {
  const std::size_t most = std::max(a.size(), b.size());
  for (std::size_t i = 0; i < most; ++i)
    if (i >= a.size() || i >= b.size() || a[i] != b[i]) return i;
  return most;
}

}  // namespace

std::string packed_statement(const std::string& host, const std::vector<NamedText>& stated) {
  Json json = {{"host", host}, {"values", Json::array()}};
  for (const NamedText& one : stated)
    json["values"].push_back({one.name, one.value});
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<Error> disagreement(const std::vector<std::string>& statements) {
  const Json first = Json::parse(statements[0]);
  for (std::size_t rank = 1; rank < statements.size(); ++rank) {
    if (statements[rank] == statements[0]) continue;
    const Json other = Json::parse(statements[rank]);
    const Json &a = first["values"], &b = other["values"];
    const std::size_t at = first_difference(a, b);
    if (at == std::max(a.size(), b.size())) continue;
    return Error(ExitCode::kRanksDisagree,
                 fmt::format("ranks disagree: rank 0 ({}) has {}, rank {} ({}) has {}",
                             first["host"].get<std::string>(), stated_at(a, at), rank,
                             other["host"].get<std::string>(), stated_at(b, at)),
                 "start every rank with the same program, options and data");
  }
  return {};
}

}  // namespace gradsync
