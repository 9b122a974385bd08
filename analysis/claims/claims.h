#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "analysis/runs/run_set.h"
#include "support/options.h"
#include "support/table.h"

/// --claims and --verify-claims: which number of a report comes from where, and whether it still
/// does. A file of JSON, schema "gradsync-claims/1", described in docs/numbers.md.
namespace gradsync::report {

/// One number of a table.
struct Claim {
  std::string id;  ///< number_id
  std::string formula, dataset;
  std::vector<std::string> files;
  double value = kNotMeasured;  ///< NaN: claimed not to be there
};

struct ClaimedFile {
  std::string path, sha256;
};

struct Claims {
  std::map<std::string, std::string> options;  ///< of the report, those that change numbers
  std::vector<ClaimedFile> files;  ///< runs, records of failed cells, or published numbers
  std::vector<Claim> claims;
};

/// The options of the report that change numbers: all but those that say where results go.
std::map<std::string, std::string> claimed_options(const OptionTable& table,
                                                   const OptionValues& values);

/// Files with digests, in order of path. Throws as sha256_file.
std::vector<ClaimedFile> claimed_files(const std::set<std::filesystem::path>& paths);

/// All files of a set.
std::vector<ClaimedFile> claimed_files(const RunSet& set);

/// Appends the numbers of a table whose columns say how they are computed. `files`: those of the
/// set, to tell apart in the rows' sources.
void add_claims(const Table& table, const std::vector<ClaimedFile>& files,
                std::vector<Claim>& claims);

std::string claims_json(const Claims& claims);

/// Throws Error kNoInput if the file is missing, kBadData if it is not such a file.
Claims read_claims(const std::filesystem::path& path);

/// Throws Error kNoInput for the first file that is missing, kBadData for the first whose content
/// is not what it was.
void require_unchanged(const std::vector<ClaimedFile>& files);

/// Compares with numbers computed anew. Equal: both not there, or within a part in 10⁹, which
/// allows for another compiler's order of additions. Throws Error kCheckFailed with the first that
/// does not hold: id, claimed, found.
void require_held(const std::vector<Claim>& claimed, const std::vector<Claim>& found);

}  // namespace gradsync::report
