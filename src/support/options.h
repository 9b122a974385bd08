#pragma once

#include <map>
#include <string>
#include <vector>

namespace gradsync {

/// One option, declared once: it gives the command line, the environment variable GRADSYNC_<NAME>,
/// the key of job and site files, the line of --help and the line of --print-config.
struct OptionSpec {
  std::string name;           ///< "batch-per-rank"
  std::string value_name;     ///< "N", "SIZE", "fp32|bf16"; empty for a switch
  std::string default_value;  ///< as text; a switch has "false"
  std::string help;           ///< with unit and range
  std::string group;          ///< heading in --help
};

using OptionTable = std::vector<OptionSpec>;

struct OptionValue {
  std::string value;
  std::string source;  ///< "command line", "environment", "job file", "site file", "default"
  std::string where;   ///< variable or file:line, for messages
};

/// Resolved values by name; every option of the table is in it.
using OptionValues = std::map<std::string, OptionValue>;

struct ParsedCommandLine {
  OptionValues values;
  std::vector<std::string> positional;
  bool help = false, version = false, print_config = false;
};

/// Reads the command line (Boost.Program_options), then the environment, the job file (--config FILE)
/// and the site file (--site FILE, else ${XDG_CONFIG_HOME:-~/.config}/gradsync/site.cfg if it is
/// there), in that precedence, over the defaults. `--help`, `--version`, `--print-config`, `--config`
/// and `--site` are added to every table. Positional arguments are an error unless `positional_name`
/// is given. An unknown option, GRADSYNC_* variable or key is an Error kUsage that names the nearest.
ParsedCommandLine resolve_options(const OptionTable& table, int argc, const char* const* argv,
                                  const std::string& positional_name = {});

/// The text of --help: `usage`, examples that work, the options by group, the exit codes.
std::string help_text(const std::string& usage, const std::string& examples, const OptionTable& table);

/// The text of --print-config: name = value  # source, in the order of the table. It is a valid job
/// file.
std::string config_text(const OptionTable& table, const OptionValues& values);

/// Typed access with checks. All throw Error kUsage naming the option, the value, where it came from
/// and the range. Sizes take B, KiB, MiB, GiB, kB, MB, GB; times take ms, s, m, h; numbers are finite.
std::int64_t integer_option(const OptionValues& values, const std::string& name, std::int64_t low,
                            std::int64_t high);
double number_option(const OptionValues& values, const std::string& name, double low, double high);
std::int64_t size_option(const OptionValues& values, const std::string& name, std::int64_t low,
                         std::int64_t high);
double duration_option(const OptionValues& values, const std::string& name, double low_s, double high_s);
bool switch_option(const OptionValues& values, const std::string& name);
/// One of `choices`; else the error names the nearest.
std::string choice_option(const OptionValues& values, const std::string& name,
                          const std::vector<std::string>& choices);

/// The entry of `candidates` nearest to `text` by edit distance, or "" if none is near.
std::string nearest(const std::string& text, const std::vector<std::string>& candidates);

}  // namespace gradsync
