#include "base/junit.h"

#include <algorithm>

#include <fmt/format.h>

namespace gradsync {

namespace {

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '&')
      result += "&amp;";
    else if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '"')
      result += "&quot;";
    else
      result += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  }
  return result;
}

std::string body(const JunitCase& one) {
  const std::string text = escaped(one.message);
  if (one.result == JunitCase::Result::kSkipped)
    return fmt::format("<skipped message=\"{}\"/>", text);
  if (one.result == JunitCase::Result::kFailed)
    return fmt::format("<failure message=\"{}\" type=\"{}\"/>", text, escaped(one.type));
  return fmt::format("<system-out>{}</system-out>", text);
}

}  // namespace

std::string junit_suite(const std::string& suite, const std::string& class_name,
                        const std::vector<JunitCase>& cases) {
  const auto count = [&](JunitCase::Result result) {
    return std::count_if(cases.begin(), cases.end(),
                         [&](const JunitCase& one) { return one.result == result; });
  };
  std::string text = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\">\n",
      escaped(suite), cases.size(), count(JunitCase::Result::kFailed),
      count(JunitCase::Result::kSkipped));
  for (const JunitCase& one : cases)
    text += fmt::format("  <testcase classname=\"{}\" name=\"{}\">{}</testcase>\n",
                        escaped(class_name), escaped(one.name), body(one));
  return text + "</testsuite>\n";
}

}  // namespace gradsync
