// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/output/claims.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json_number.h"
#include "base/parse.h"

namespace gradsync::report {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kSchema = "gradsync-claims/1";
constexpr double kTolerance = 1e-9;

/// Groups of options that change no number.
const std::set<std::string> kPlaces = {"Where to", "Claims"};

/// The known paths in a text of paths with ", " between; a path may hold ", " itself.
std::vector<std::string> files_in(const std::string& sources,
                                  const std::vector<ClaimedFile>& files) {
  std::vector<std::string> found;
  const std::string all = ", " + sources + ", ";
  for (const ClaimedFile& file : files)
    if (all.find(", " + file.path + ", ") != std::string::npos) found.push_back(file.path);
  return found;
}

bool equal(double a, double b) {
  if (!std::isfinite(a) || !std::isfinite(b)) return !std::isfinite(a) && !std::isfinite(b);
  return std::abs(a - b) <= kTolerance * std::max(std::abs(a), std::abs(b));
}

std::string shown(double value) {
  return std::isfinite(value) ? machine_number(value) : "n/a";
}

[[noreturn]] void refuse(const fs::path& path, const std::string& why) {
  throw Error(ExitCode::kBadData, fmt::format("{}: {}", path.string(), why),
              "give a file that gradsync-report or gradsync-audit wrote with --claims");
}

Claim read_claim(const json& value) {
  Claim claim;
  claim.id = value.at("id").get<std::string>();
  claim.formula = value.at("formula").get<std::string>();
  claim.dataset = value.at("dataset").get<std::string>();
  claim.files = value.at("files").get<std::vector<std::string>>();
  if (!value.at("value").is_null()) claim.value = value.at("value").get<double>();
  return claim;
}

Claims read_document(const json& document) {
  Claims claims;
  claims.options = document.at("options").get<std::map<std::string, std::string>>();
  for (const json& file : document.at("files"))
    claims.files.push_back(
        {file.at("path").get<std::string>(), file.at("sha256").get<std::string>()});
  for (const json& claim : document.at("claims"))
    claims.claims.push_back(read_claim(claim));
  return claims;
}

void require_unchanged(const std::vector<ClaimedFile>& files) {
  for (const ClaimedFile& file : files)
    if (!fs::exists(file.path))
      throw Error(ExitCode::kNoInput, fmt::format("'{}' does not exist", file.path),
                  "run --verify-claims in the folder in which the claims were made");
  for (const ClaimedFile& file : files)
    if (sha256_file(file.path) != file.sha256)
      throw Error(ExitCode::kBadData,
                  fmt::format("{} is not the file that the claims were made from", file.path),
                  "bring that file back, or write new claims with --claims");
}

/// The values of the claims, and the defaults of the rest, as of a command line.
OptionValues values_of(const Claims& claims, const fs::path& path, const std::string& program,
                       const OptionTable& options) {
  OptionValues values;
  for (const OptionSpec& spec : options)
    values[spec.name] = {spec.default_value, "default", "default"};
  for (const auto& [name, value] : claims.options) {
    if (!values.contains(name))
      throw Error(ExitCode::kBadData,
                  fmt::format("{}: '{}' is not an option of {}", path.string(), name, program),
                  "verify with the program and the version that made the claims");
    values[name] = {value, "claims", path.string() + ": " + name};
  }
  return values;
}

}  // namespace

BoundGroup<ClaimOptions> claim_options() {
  using O = ClaimOptions;
  const auto file = [](auto member) { return BoundValue<O>::text_value<fs::path>(member, "FILE"); };
  return {"Claims",
          {
              {"claims", file(&O::claims),
               "write for each number of the tables its id, formula, files, data set and value, "
               "as JSON"},
              {"verify-claims", file(&O::verify_claims),
               "compute the numbers of a file of claims again; exit code 1 if one differs"},
          }};
}

std::map<std::string, std::string> claimed_options(const OptionTable& table,
                                                   const OptionValues& values) {
  std::map<std::string, std::string> options;
  for (const OptionSpec& spec : table)
    if (!kPlaces.contains(spec.group)) options[spec.name] = values.at(spec.name).value;
  return options;
}

std::vector<ClaimedFile> claimed_files(const RunSet& set, std::set<fs::path> more) {
  std::set<fs::path> paths = std::move(more);
  for (const Run* run : all_runs(set))
    paths.insert(run->path);
  for (const CalibrationFile& file : set.calibrations)
    paths.insert(file.paths.begin(), file.paths.end());
  for (const FailedCell& failed : set.failed) {
    paths.insert(failed.path);
    const fs::path grid = folder_of(failed.path) / "grid.json";
    if (fs::exists(grid)) paths.insert(grid);
  }
  return claimed_files(paths);
}

std::vector<ClaimedFile> claimed_files(const std::set<fs::path>& paths) {
  std::vector<ClaimedFile> files;
  for (const fs::path& path : paths)
    files.push_back({path.string(), sha256_file(path)});
  return files;
}

void add_claims(const Table& table, const std::vector<ClaimedFile>& files,
                std::vector<Claim>& claims) {
  std::string sources;
  std::vector<std::string> of_row;
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    if (row == 0 || table.sources[row] != sources) {
      sources = table.sources[row];
      of_row = files_in(sources, files);
    }
    for (std::size_t c = 0; c < table.columns.size(); ++c)
      if (has_claim(table, row, c))
        claims.push_back({number_id(table, row, c), table.columns[c].formula,
                          table.columns[c].dataset, of_row, table.rows[row][c].number});
  }
}

std::string claims_json(const Claims& claims) {
  ordered_json files = ordered_json::array(), numbers = ordered_json::array();
  for (const ClaimedFile& file : claims.files)
    files.push_back({{"path", file.path}, {"sha256", file.sha256}});
  for (const Claim& claim : claims.claims)
    numbers.push_back({{"id", claim.id},
                       {"formula", claim.formula},
                       {"files", claim.files},
                       {"dataset", claim.dataset},
                       {"value", number_or_null(claim.value)}});
  const ordered_json document = {{"schema", kSchema},
                                 {"options", claims.options},
                                 {"files", std::move(files)},
                                 {"claims", std::move(numbers)}};
  return document.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

Claims read_claims(const fs::path& path) {
  const json document = parse_json(read_text_file(path));
  if (!document.is_object() || document.value("schema", json()) != kSchema)
    refuse(path, fmt::format("no claims of schema {}", kSchema));
  try {
    return read_document(document);
  } catch (const json::exception& error) {
    refuse(path, error.what());
  }
}

void require_held(const std::vector<Claim>& claimed, const std::vector<Claim>& found) {
  std::map<std::string, double> values;
  for (const Claim& claim : found)
    values.emplace(claim.id, claim.value);
  for (const Claim& claim : claimed) {
    const auto value = values.find(claim.id);
    if (value == values.end())
      throw Error(ExitCode::kCheckFailed,
                  fmt::format("claim {} does not hold: claimed {}, found no such number", claim.id,
                              shown(claim.value)));
    if (!equal(claim.value, value->second))
      throw Error(ExitCode::kCheckFailed,
                  fmt::format("claim {} does not hold: claimed {}, found {}", claim.id,
                              shown(claim.value), shown(value->second)));
  }
}

void write_claims(const fs::path& path, const OptionTable& options, const OptionValues& values,
                  std::vector<ClaimedFile> files, const std::vector<Table>& tables) {
  Claims claims{claimed_options(options, values), std::move(files), {}};
  for (const Table& table : tables)
    add_claims(table, claims.files, claims.claims);
  write_file_atomically(path, claims_json(claims));
}

std::string verify_claims(const fs::path& path, const std::string& program,
                          const OptionTable& options, const MakeTables& make) {
  const Claims claims = read_claims(path);
  require_unchanged(claims.files);
  const OptionValues values = values_of(claims, path, program, options);
  std::vector<Claim> found;
  for (const Table& table : make(values, claims.files))
    add_claims(table, claims.files, found);
  require_held(claims.claims, found);
  return fmt::format("{} from {} hold", count_text(claims.claims.size(), "number"),
                     count_text(claims.files.size(), "file"));
}

}  // namespace gradsync::report
