// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

/// Site files, and what they say of jobs of Slurm: keys in the text format of all others, which
/// gradsync-sweep uses and the other programs pass over in the site file that they share.
namespace gradsync {

/// ${XDG_CONFIG_HOME:-~/.config}/gradsync/NAME of this user; empty where neither variable is set.
std::filesystem::path user_file(const std::string& name);

/// The site file of all programs, without --site: GRADSYNC_SITE, else the user's site.cfg if it is
/// there; empty: none.
std::filesystem::path shared_site_file();

/// One key.
struct SlurmKey {
  std::string name;            ///< "account"
  std::string variable;        ///< by which sbatch takes it: "SBATCH_ACCOUNT"; or the option by
                               ///< which it does alone: "--nice"; empty: it takes none
  std::string default_value;   ///< where the file leaves it out
  std::string pattern = ".*";  ///< regular expression of its values
  std::string form = {};       ///< those values in words, for messages: "a count"
};

/// All of them, in the order of slurm/site.example. `partition` and `time` exist for each template,
/// too: partition-cpu.
const std::vector<SlurmKey>& slurm_keys();

/// The templates of slurm/.
const std::vector<std::string>& slurm_templates();

bool is_slurm_key(const std::string& name);

/// The values of a site: of every key, the defaults included.
using SlurmSite = std::map<std::string, std::string>;

/// Reads the first of these files that is there: `templates`/site, the user's
/// ${XDG_CONFIG_HOME:-~/.config}/gradsync/slurm-site (the folder of an installation belongs to all
/// users), or `shared`, the site file of all programs, in which other keys are theirs. No file is
/// fine. Throws Error kUsage with file:line for a line that is no `key = value`, an unknown key, a
/// key given twice, without a value or with a wrong one; and for a file that somebody else may
/// write, since it names programs: one that belongs neither to this user, root, nor the owner of
/// this program, that all may write, or a group that is not this user's own.
SlurmSite read_slurm_site(const std::filesystem::path& templates,
                          const std::filesystem::path& shared);

/// What is not a default, as a text that slurm_site_of reads: for jobs, which so keep the site of
/// their submission.
std::string slurm_site_text(const SlurmSite& site);
SlurmSite slurm_site_of(const std::string& text, const std::string& name);

}  // namespace gradsync
