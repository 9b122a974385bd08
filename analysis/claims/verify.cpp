#include "analysis/claims/verify.h"

#include <fmt/format.h>

#include "analysis/claims/claims.h"
#include "analysis/output/report_options.h"
#include "support/error.h"

namespace gradsync::report {

namespace {

/// The options of the report with the values of the claims, read as a command line is.
ReportOptions options_of(const Claims& claims, const std::filesystem::path& path) {
  OptionValues values;
  for (const OptionSpec& spec : report_option_table())
    values[spec.name] = {spec.default_value, "default", "default"};
  for (const auto& [name, value] : claims.options) {
    if (!values.contains(name))
      throw Error(ExitCode::kBadData,
                  fmt::format("{}: '{}' is no option of gradsync-report", path.string(), name),
                  "verify with the version that made the claims");
    values[name] = {value, "claims", path.string() + ": " + name};
  }
  return report_options(values);
}

RunSet load(const std::vector<ClaimedFile>& files) {
  std::vector<std::string> failures;
  std::vector<FoundRun> runs;
  for (const ClaimedFile& file : files) {
    if (file.path.ends_with(".failed.json"))
      failures.push_back(file.path);
    else if (!file.path.ends_with(".json"))
      runs.push_back({file.path, true});
  }
  RunSet set = load_runs(runs);
  set.failed = find_failed_cells(failures, set.remarks);
  return set;
}

std::vector<Table> tables_of(const ReportOptions& options, const std::vector<ClaimedFile>& files) {
  if (!options.published.file.empty()) return published::read_published(options.published).tables;
  const RunSet set = load(files);
  const RunStudy runs(set);
  std::vector<Table> tables;
  for (const TableSpec* spec : options.tables)
    tables.push_back(spec->make(runs, options.table));
  return tables;
}

}  // namespace

std::string verify_claims(const std::filesystem::path& path) {
  const Claims claims = read_claims(path);
  require_unchanged(claims.files);
  const ReportOptions options = options_of(claims, path);
  std::vector<Claim> found;
  for (const Table& table : tables_of(options, claims.files))
    add_claims(table, claims.files, found);
  require_held(claims.claims, found);
  return fmt::format("{} numbers from {} files hold", claims.claims.size(), claims.files.size());
}

}  // namespace gradsync::report
