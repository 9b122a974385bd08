#include "check/finding.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace gradsync::check {

namespace {
constexpr std::ptrdiff_t kShown = 4;
}

Finding passed(std::string id, std::string seen) {
  return {std::move(id), Outcome::kPass, std::move(seen), ""};
}

Finding warned(std::string id, std::string seen, std::string fix) {
  return {std::move(id), Outcome::kWarn, std::move(seen), std::move(fix)};
}

Finding failed(std::string id, std::string seen, std::string fix) {
  return {std::move(id), Outcome::kFail, std::move(seen), std::move(fix)};
}

Finding skipped(std::string id, std::string reason) {
  return {std::move(id), Outcome::kSkip, std::move(reason), ""};
}

std::size_t count_of(const std::vector<Finding>& findings, Outcome outcome) {
  return static_cast<std::size_t>(
      std::count_if(findings.begin(), findings.end(),
                    [&](const Finding& finding) { return finding.outcome == outcome; }));
}

std::string summary_text(const std::vector<Finding>& findings) {
  return fmt::format("{} pass, {} warn, {} fail, {} skip", count_of(findings, Outcome::kPass),
                     count_of(findings, Outcome::kWarn), count_of(findings, Outcome::kFail),
                     count_of(findings, Outcome::kSkip));
}

std::string first_few(const std::vector<std::string>& parts) {
  const auto count = static_cast<std::ptrdiff_t>(parts.size());
  const auto shown = std::min(count, kShown);
  std::string text = fmt::format("{}", fmt::join(parts.begin(), parts.begin() + shown, "; "));
  if (count > shown) text += fmt::format("; and {} more", count - shown);
  return text;
}

}  // namespace gradsync::check
