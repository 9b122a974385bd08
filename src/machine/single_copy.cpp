#include "machine/single_copy.h"

#include <map>
#include <set>

namespace gradsync {

std::vector<std::string> hosts_where_cma_fails(const std::vector<std::string>& hosts,
                                               const std::vector<std::uint64_t>& namespaces) {
  std::map<std::string, std::set<std::uint64_t>> of_host;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank)
    if (namespaces[rank] != 0) of_host[hosts[rank]].insert(namespaces[rank]);
  std::vector<std::string> failing;
  for (const auto& [host, numbers] : of_host)
    if (numbers.size() > 1) failing.push_back(host);
  return failing;
}

}  // namespace gradsync
