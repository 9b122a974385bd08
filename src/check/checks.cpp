#include "check/facts.h"

namespace gradsync::check {

const std::vector<Check>& checks() {
  static const std::vector<Check> all = {
#define GRADSYNC_CHECK(id, name) {name, check_##id},
#include "check/checks.def"
#undef GRADSYNC_CHECK
  };
  return all;
}

}  // namespace gradsync::check
