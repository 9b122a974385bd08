#include "base/error.h"
#include "base/parse.h"
#include "check/facts.h"
#include "data/cifar10.h"

namespace gradsync::check {

namespace {

constexpr std::size_t kDigestShown = 16;

DataFacts look_at(const std::string& folder) {
  DataFacts facts{true, "", "", "", "", 0};
  try {
    const Cifar10 data(folder);
    const DataDigest digest = data.verify();
    facts.name = digest.name;
    facts.digest = digest.combined;
    facts.images = static_cast<long>(data.size(Split::kTrain) + data.size(Split::kTest));
  } catch (...) {
    const Error error = current_error();
    facts.error = error.what();
    facts.fix = error.fix();
  }
  return facts;
}

Ranks<DataFacts> those_that_looked(const Ranks<DataFacts>& ranks) {
  Ranks<DataFacts> looked;
  for (const auto& rank : ranks)
    if (rank.facts.looked) looked.push_back(rank);
  return looked;
}

}  // namespace

std::vector<Finding> judge_data(const Ranks<DataFacts>& ranks, const CheckOptions& options) {
  const std::string id = "data";
  const Ranks<DataFacts> hosts = those_that_looked(ranks);
  std::vector<std::string> errors, others;
  std::string fix;
  for (const auto& host : hosts) {
    if (!host.facts.error.empty()) {
      errors.push_back(fmt::format("{}: {}", host.host, host.facts.error));
      fix = host.facts.fix;
    } else if (host.facts.digest != hosts.front().facts.digest) {
      others.push_back(
          fmt::format("{} has {}", host.host, host.facts.digest.substr(0, kDigestShown)));
    }
  }
  if (!errors.empty()) return {failed(id, first_few(errors), fix)};
  const DataFacts& first = hosts.front().facts;
  const std::string digest = first.digest.substr(0, kDigestShown);
  if (!others.empty())
    return {failed(id,
                   fmt::format("hosts have different data in '{}': {} has {}, {}", options.data,
                               hosts.front().host, digest, first_few(others)),
                   "copy one data set to all nodes, or name a shared folder with --data")};
  return {passed(id, fmt::format("{}, {} images, SHA-256 {}… on {}", first.name, first.images,
                                 digest, count_text(hosts.size(), "host")))};
}

CheckResult check_data(Job& job, const CheckOptions& options) {
  const DataFacts mine = job.place().local_rank == 0 ? look_at(options.data) : DataFacts{};
  return judged(job, mine, [&](const Ranks<DataFacts>& ranks) {
    return CheckResult{judge_data(ranks, options)};
  });
}

}  // namespace gradsync::check
