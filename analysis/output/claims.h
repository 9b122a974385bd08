// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "analysis/read/run_set.h"
#include "base/cli/bound_option.h"
#include "base/table.h"

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

/// Options of every program whose numbers can be claimed.
struct ClaimOptions {
  std::filesystem::path claims;         ///< a file to write; empty: none
  std::filesystem::path verify_claims;  ///< a file to verify instead; empty: none
};

BoundGroup<ClaimOptions> claim_options();

struct ClaimedFile {
  std::string path, sha256;
};

struct Claims {
  std::map<std::string, std::string> options;  ///< of the program, those that change numbers
  std::vector<ClaimedFile> files;  ///< runs, records of failed cells, or published numbers
  std::vector<Claim> claims;
};

/// The options that change numbers: all but those that say where results go.
std::map<std::string, std::string> claimed_options(const OptionTable& table,
                                                   const OptionValues& values);

/// Files with digests, in order of path. Throws as sha256_file.
std::vector<ClaimedFile> claimed_files(const std::set<std::filesystem::path>& paths);

/// All files of a set, and `more`.
std::vector<ClaimedFile> claimed_files(const RunSet& set,
                                       std::set<std::filesystem::path> more = {});

/// Appends the numbers of a table whose columns say how they are computed. `files`: those of the
/// set, to tell apart in the rows' sources.
void add_claims(const Table& table, const std::vector<ClaimedFile>& files,
                std::vector<Claim>& claims);

std::string claims_json(const Claims& claims);

/// Writes the claims of `tables`, which a program made with `values` from `files`.
void write_claims(const std::filesystem::path& path, const OptionTable& options,
                  const OptionValues& values, std::vector<ClaimedFile> files,
                  const std::vector<Table>& tables);

/// Throws Error kNoInput if the file is missing, kBadData if it is not such a file.
Claims read_claims(const std::filesystem::path& path);

/// Compares with numbers that were computed again. Equal: both not there, or within a part in 10⁹,
/// which allows for another compiler's order of additions. Throws Error kCheckFailed with the first
/// that does not hold: id, claimed, found.
void require_held(const std::vector<Claim>& claimed, const std::vector<Claim>& found);

/// Makes tables again with the options of claims and from their files.
using MakeTables =
    std::function<std::vector<Table>(const OptionValues&, const std::vector<ClaimedFile>&)>;

/// Reads a file of claims, makes its tables again and compares. Returns one line for people: how
/// many numbers of how many files hold. `options` are those of `program`. Throws as read_claims and
/// require_held; kNoInput for the first file that is missing; kBadData for the first whose content
/// is not what it was, and if the claims name another option.
std::string verify_claims(const std::filesystem::path& path, const std::string& program,
                          const OptionTable& options, const MakeTables& make);

}  // namespace gradsync::report
