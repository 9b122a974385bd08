#pragma once

#include <string>
#include <vector>

namespace gradsync {

/// One test of a JUnit file.
struct JunitCase {
  enum class Result { kPassed, kFailed, kSkipped };

  std::string name;
  Result result = Result::kPassed;
  std::string message;  ///< why it failed or was skipped; what it printed if it passed
  std::string type;     ///< of a failure
};

/// A JUnit XML file of one suite. What XML 1.0 cannot hold becomes a question mark.
std::string junit_suite(const std::string& suite, const std::string& class_name,
                        const std::vector<JunitCase>& cases);

}  // namespace gradsync
