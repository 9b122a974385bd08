// SPDX-License-Identifier: BSD-3-Clause
#include "base/cli/slurm_site.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <regex>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/cli/key_values.h"
#include "base/error.h"
#include "base/parse.h"

namespace gradsync {

namespace {

namespace fs = std::filesystem;

// The value of a variable; an empty one counts as unset.
std::string value_or_empty(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

fs::path user_file(const std::string& name) {
  fs::path folder = value_or_empty("XDG_CONFIG_HOME");
  const fs::path home = value_or_empty("HOME");
  if (folder.empty() && !home.empty()) folder = home / ".config";
  return folder.empty() ? folder : folder / "gradsync" / name;
}

fs::path shared_site_file() {
  const fs::path named = value_or_empty("GRADSYNC_SITE");
  if (!named.empty()) return named;
  const fs::path file = user_file("site.cfg");
  std::error_code ignored;
  return fs::exists(file, ignored) ? file : fs::path();
}

const std::vector<std::string>& slurm_templates() {
  static const std::vector<std::string> names = {"one-gpu", "two-gpu", "four-gpu", "multi-node",
                                                 "cpu",     "grid",    "quantize", "calibrate"};
  return names;
}

namespace {

constexpr const char* kTime = "([0-9]+-)?[0-9]+(:[0-9]+){0,2}";

std::vector<SlurmKey> all_keys() {
  std::vector<SlurmKey> keys = {
      {"account", "SBATCH_ACCOUNT", ""},
      {"partition", "SBATCH_PARTITION", ""},
      {"qos", "SBATCH_QOS", ""},
      {"constraint", "SBATCH_CONSTRAINT", ""},
      {"reservation", "SBATCH_RESERVATION", ""},
      {"exclusive", "SBATCH_EXCLUSIVE", "", "yes|user|mcs", "yes, user or mcs"},
      {"time", "SBATCH_TIMELIMIT", "", kTime, "as for sbatch, 4:00:00"},
      {"memory", "SBATCH_MEM_PER_NODE", "", "[0-9]+[KMGT]?",
       "a size a node, 64G, or 0 for all of it"},
      {"network", "SBATCH_NETWORK", ""},
      {"switches", "SBATCH_REQ_SWITCH", ""},
      {"hint", "SBATCH_HINT", "", "(compute|memory)_bound|(no)?multithread",
       "nomultithread, multithread, compute_bound or memory_bound"},
      {"gpu-bind", "SBATCH_GPU_BIND", ""},
      {"gpu-request", "", "gpus-per-node",
       "gpus-per-node|gpus-per-task|gres|gres:[[:alnum:]_.-]+|none",
       "gpus-per-node, gpus-per-task, gres, gres:TYPE or none"},
      {"cores-per-rank", "--cpus-per-task", "", "[1-9][0-9]{0,3}", "a count"},
      {"licenses", "--licenses", ""},
      {"nice", "--nice", "", "[0-9]{1,9}", "a count"},
      {"mail-user", "--mail-user", ""},
      {"mail-type", "--mail-type", ""},
      {"sbatch-options", "", ""},
      {"modules", "", ""},
      {"container", "", ""},
      {"launcher", "", "srun", "srun|mpirun", "srun or mpirun"},
      {"mpi", "", "pmix"},
      {"cpu-freq", "", ""},
      {"data", "", ""},
      {"max-restarts", "", "5", "[0-9]{1,4}", "a count"},
      {"array-tasks", "", "1", "[1-9][0-9]{0,3}", "a count"}};
  for (const std::string& name : slurm_templates()) {
    keys.push_back({"partition-" + name, "", ""});
    keys.push_back({"time-" + name, "", "", kTime, "as for sbatch, 4:00:00"});
  }
  return keys;
}

}  // namespace

const std::vector<SlurmKey>& slurm_keys() {
  static const std::vector<SlurmKey> keys = all_keys();
  return keys;
}

namespace {

const SlurmKey* find_key(const std::string& name) {
  const auto& keys = slurm_keys();
  const auto found =
      std::find_if(keys.begin(), keys.end(), [&](const SlurmKey& key) { return key.name == name; });
  return found == keys.end() ? nullptr : &*found;
}

[[noreturn]] void refuse_unknown(const KeyValue& entry) {
  std::vector<std::string> names;
  for (const SlurmKey& key : slurm_keys())
    names.push_back(key.name);
  throw Error(
      ExitCode::kUsage,
      fmt::format("{}: unknown key '{}'{}", entry.where, entry.key, did_you_mean(entry.key, names)),
      fmt::format("the keys: {}", fmt::join(names, " ")));
}

void require_value(const KeyValue& entry, const SlurmKey& key) {
  if (entry.value.empty())
    throw Error(ExitCode::kUsage, fmt::format("{}: '{}' has no value", entry.where, key.name),
                "give it one, or remove the line");
  if (!std::regex_match(entry.value, std::regex(key.pattern)))
    throw Error(ExitCode::kUsage, fmt::format("{}: {} is {}, not '{}'", entry.where, key.name,
                                              key.form, entry.value));
}

SlurmSite site_of(const std::vector<KeyValue>& entries) {
  SlurmSite site;
  for (const SlurmKey& key : slurm_keys())
    site[key.name] = key.default_value;
  require_unique_keys(entries, {});
  for (const KeyValue& entry : entries) {
    const SlurmKey* const key = find_key(entry.key);
    if (key == nullptr) refuse_unknown(entry);
    require_value(entry, *key);
    site[key->name] = entry.value;
  }
  return site;
}

void require_trusted(const fs::path& file) {
  struct stat seen {
  }, program{};
  if (::stat(file.c_str(), &seen) != 0 || ::stat("/proc/self/exe", &program) != 0) return;
  const bool is_ours =
      seen.st_uid == ::geteuid() || seen.st_uid == 0 || seen.st_uid == program.st_uid;
  const bool is_open = (seen.st_mode & S_IWOTH) != 0 ||
                       ((seen.st_mode & S_IWGRP) != 0 && seen.st_gid != ::getegid());
  if (!S_ISREG(seen.st_mode) || (is_ours && !is_open)) return;
  throw Error(ExitCode::kUsage,
              fmt::format("{}: others can write this file, and it names programs", file.string()),
              "chmod go-w " + file.string() + ", after a look at it; or a file of your own");
}

}  // namespace

bool is_slurm_key(const std::string& name) {
  return find_key(name) != nullptr;
}

SlurmSite read_slurm_site(const fs::path& templates, const fs::path& shared) {
  const fs::path own = user_file("slurm-site");
  fs::path file = shared;
  for (const fs::path& candidate : {own, templates / "site"})
    if (fs::exists(candidate)) file = candidate;
  if (file.empty()) return site_of({});
  require_trusted(file);
  std::vector<KeyValue> entries = read_key_values(file);
  if (file == shared)
    std::erase_if(entries, [](const KeyValue& entry) { return !is_slurm_key(entry.key); });
  return site_of(entries);
}

std::string slurm_site_text(const SlurmSite& site) {
  std::string text = "# the site of the submission\n";
  for (const SlurmKey& key : slurm_keys())
    if (const std::string& value = site.at(key.name); value != key.default_value)
      text += key.name + " = " + quoted_where_needed(value) + '\n';
  return text;
}

SlurmSite slurm_site_of(const std::string& text, const std::string& name) {
  return site_of(parse_key_values(text, name));
}

}  // namespace gradsync
