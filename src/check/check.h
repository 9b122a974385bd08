#pragma once

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "check/check_options.h"
#include "check/finding.h"
#include "check/job.h"

namespace gradsync::check {

/// One check: gathers facts of every rank and judges them on rank 0. Collective; it throws on no
/// rank alone, since the others would wait for it.
///
/// The judgment of each check is a function of its own from facts to findings, so that it can be
/// given any facts.
struct Check {
  std::string id;
  CheckResult (*run)(Job& job, const CheckOptions& options);
};

/// All of them, in the order of the report.
const std::vector<Check>& checks();

/// What one rank states.
template <typename Facts>
struct OnRank {
  int rank = 0;
  std::string host;
  Facts facts;

  /// "rank 2 (node07)".
  std::string name() const { return fmt::format("rank {} ({})", rank, host); }
};

template <typename Facts>
using Ranks = std::vector<OnRank<Facts>>;

/// The facts of all ranks on rank 0, in order of rank; empty elsewhere. `Facts` reads from and
/// writes to nlohmann's JSON. Collective.
template <typename Facts>
Ranks<Facts> gather_facts(Job& job, const Facts& mine) {
  const nlohmann::json stated = {{"host", job.place().host}, {"facts", mine}};
  Ranks<Facts> all;
  for (const std::string& text :
       job.gather(stated.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace))) {
    const auto json = nlohmann::json::parse(text);
    all.push_back({static_cast<int>(all.size()), json.at("host").template get<std::string>(),
                   json.at("facts").template get<Facts>()});
  }
  return all;
}

/// Runs `judge(facts of all ranks)` where they are, on rank 0.
template <typename Facts, typename Judge>
CheckResult judged(Job& job, const Facts& mine, Judge&& judge) {
  const auto facts = gather_facts(job, mine);
  return facts.empty() ? CheckResult{} : judge(facts);
}

}  // namespace gradsync::check
