#include "check/binding.h"
#include "check/check.h"
#include "check/clocks.h"
#include "check/data_set.h"
#include "check/gpus.h"
#include "check/launch.h"
#include "check/libraries.h"
#include "check/limits.h"
#include "check/links.h"
#include "check/nodes.h"
#include "check/ranks.h"
#include "check/results.h"
#include "check/shared_memory.h"

namespace gradsync::check {

const std::vector<Check>& checks() {
  static const std::vector<Check> all = {
      {"launch", check_launch},       {"ranks", check_ranks},
      {"gpus", check_gpus},           {"binding", check_binding},
      {"limits", check_limits},       {"nodes", check_nodes},
      {"libraries", check_libraries}, {"shared-memory", check_shared_memory},
      {"results", check_results},     {"data", check_data},
      {"clocks", check_clocks},       {"links", check_links},
  };
  return all;
}

}  // namespace gradsync::check
