#include "check/check.h"

namespace gradsync::check {

#define GRADSYNC_CHECK(id, name) CheckResult check_##id(Job& job, const CheckOptions& options);
#include "check/checks.def"
#undef GRADSYNC_CHECK

const std::vector<Check>& checks() {
  static const std::vector<Check> all = {
#define GRADSYNC_CHECK(id, name) {name, check_##id},
#include "check/checks.def"
#undef GRADSYNC_CHECK
  };
  return all;
}

}  // namespace gradsync::check
