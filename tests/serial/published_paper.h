#pragma once

#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "analysis/published/audit.h"
#include "expect_error.h"

/// Small published tables made up for tests, and what the audit says of them.
namespace gradsync::report::published::testing {

/// Writes small published tables: setting first, then numbers as they would be printed.
class Paper {
 public:
  Paper& at(const std::string& mode, int devices, int batch) {
    setting_ = "r,t,resnet18," + mode + "," + std::to_string(devices) + "," + std::to_string(batch);
    return *this;
  }
  Paper& say(const std::string& quantity, const std::string& value, const std::string& unit) {
    text_ += setting_ + "," + quantity + "," + value + "," + unit + "\n";
    return *this;
  }
  Paper& raw(const std::string& line) {
    text_ += line + "\n";
    return *this;
  }
  Study study() const { return Study(parse_published(text_, "paper.csv")); }

 private:
  std::string text_ = "report,table,model,mode,devices,batch_per_device,quantity,value,unit\n";
  std::string setting_;
};

struct Result {
  Study study;
  Audit audit;

  explicit Result(const Paper& paper, const AuditOptions& options = {})
      : study(paper.study()), audit(published::audit(study, options)) {}

  /// The verdict on the row of this quantity, devices and batch.
  std::string verdict(const std::string& quantity, std::int64_t devices, std::int64_t batch) const {
    for (std::size_t i = 0; i < study.rows().size(); ++i) {
      const Row& row = study.rows()[i];
      if (row.quantity == quantity && row.devices == devices && row.batch_per_device == batch)
        return audit.verdicts[i].text;
    }
    return "no such row";
  }
  const Fit& fit(const std::string& quantity) const {
    for (const ColumnAudit& column : audit.columns)
      if (column.column.quantity == quantity) return column.fit;
    FAIL("no such column");
    return audit.columns.front().fit;
  }
  /// The finding whose text holds `part`, in one line with its severity; "" if there is none.
  std::string finding(const std::string& part) const {
    for (const Finding& finding : audit.findings)
      if (contains(finding.text(), part))
        return std::string(severity_text(finding.severity)) + ": " + finding.text();
    return "";
  }
};

/// T(1) = 100 s; T(2) = 60 s, T(4) = 40 s at batch 50, T(2) = 52 s, T(4) = 28 s at batch 100:
/// 50,000 images are 1,000, 500 and 250 iterations at batch 50, and half of that at 100.
inline Paper times() {
  Paper paper;
  paper.at("single", 1, 50).say("epoch_time", "100.0", "s");
  paper.at("ddp", 2, 50).say("epoch_time", "60.0", "s");
  paper.at("ddp", 4, 50).say("epoch_time", "40.0", "s");
  paper.at("single", 1, 100).say("epoch_time", "100.0", "s");
  paper.at("ddp", 2, 100).say("epoch_time", "52.0", "s");
  paper.at("ddp", 4, 100).say("epoch_time", "28.0", "s");
  return paper;
}

/// Adds one number for each of the four settings with several devices, in their order.
inline Paper with(const std::string& quantity, const std::vector<std::string>& values,
                  const std::string& unit, Paper paper = times()) {
  const std::vector<std::pair<int, int>> settings = {{2, 50}, {4, 50}, {2, 100}, {4, 100}};
  for (std::size_t i = 0; i < values.size(); ++i)
    paper.at("ddp", settings[i].first, settings[i].second).say(quantity, values[i], unit);
  return paper;
}

}  // namespace gradsync::report::published::testing
