/// Every header of the programs in one file: two definitions of one name, which a linker would not
/// notice, do not compile. (What single .cpp files define is compared by `make soak
/// PARTS=sanitizers`.)
#include <doctest/doctest.h>

#include <type_traits>

#include "all_headers.h"

TEST_CASE("headers: components have namespaces of their own") {
  CHECK_FALSE(std::is_same_v<gradsync::CalibrationCurve, gradsync::report::CalibrationCurve>);
}
