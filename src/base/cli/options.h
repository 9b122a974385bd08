// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/parse.h"

namespace gradsync {

/// One option, declared once: it gives the command line, the environment variable GRADSYNC_<NAME>,
/// the key of job and site files, the line of --help and the line of --print-config.
/// A switch NAME is turned on by --NAME and off by --no-NAME, so its name does not begin with
/// "no-".
struct OptionSpec {
  std::string name;           ///< "batch-per-rank"
  std::string value_name;     ///< "N", "SIZE", "fp32|bf16"; empty for a switch
  std::string default_value;  ///< as text; a switch has "false" or "true"
  std::string help;           ///< with unit and range
  std::string group;          ///< heading in --help; the options of a group stand together
  bool repeatable = false;    ///< may be given several times in one place: values joined by '\n'
  std::string scope = {};     ///< "report": see `scoped`; empty: the trainer's meaning, shared
  char letter = 0;            ///< short form on the command line: 'b' for -b; 0: none
  std::vector<std::string> choices = {};  ///< the words it takes, where these can be listed
};

using OptionTable = std::vector<OptionSpec>;

/// The options of one program, in whose name alone they can be set beside the command line: the
/// variable is GRADSYNC_REPORT_OUTPUT and the key of site files report-output. So what is set for
/// the trainer (GRADSYNC_OUTPUT) does not reach an option of another meaning. The job file of such
/// a program is named by GRADSYNC_REPORT_CONFIG. An option whose meaning is shared (--data of
/// gradsync-check) is added to the table afterwards and keeps GRADSYNC_DATA.
OptionTable scoped(const std::string& scope, OptionTable table);

/// "report-output" for "output" in the scope "report"; the name itself where there is none.
std::string in_scope(const std::string& scope, const std::string& name);

/// What `scoped` gave to options of the table; empty for the trainer's.
std::string scope_of(const OptionTable& table);

struct OptionValue {
  std::string value;
  std::string source;  ///< "command line", "environment", "job file", "site file", "default"
  std::string where;   ///< "--lr", "GRADSYNC_LR", "jobs/demo.cfg:12" or "default", for messages
};

/// Resolved values by name; every option of the table is in it.
using OptionValues = std::map<std::string, OptionValue>;

/// What a command line requests in place of a run; see base/cli/program_help.h.
enum class Question { kNone, kHelp, kHelpAll, kManualPage, kCompletion, kVersion, kConfig };

struct ParsedCommandLine {
  OptionValues values;
  std::vector<std::string> positional;
  Question question = Question::kNone;
  bool quiet = false;  ///< --quiet
  std::string json;    ///< --json FILE; empty: none

  /// Whether the values have to be read: they are not for --help and its like.
  bool has_values() const { return question == Question::kNone || question == Question::kConfig; }
};

/// What is done with a GRADSYNC_* variable or a key of the site file that the table does not have.
/// Both are shared by the programs of the suite and carry the trainer's names, so the trainer
/// rejects what it does not know (it is misspelled) and the other programs take what is theirs.
/// What begins with the name of another program (GRADSYNC_REPORT_…, report-…) is left to that one.
enum class Foreign { kIgnore, kReject };

/// Reads the command line (Boost.Program_options), then the environment, the job file (--config
/// FILE, else GRADSYNC_CONFIG) and the site file (--site FILE, else GRADSYNC_SITE, else
/// ${XDG_CONFIG_HOME:-~/.config}/gradsync/site.cfg if it is there), in that precedence, over the
/// defaults. `--config`, `--site`, `--quiet`, `--json` and the options of `Question` are added to
/// every table; of the latter all except --print-config read nothing but the command line. An empty
/// variable counts as unset. Positional arguments are an error unless `positional_name` is given.
/// An unknown or abbreviated option, or an unknown key of a job file, is an Error kUsage that names
/// the nearest, and so is an option given twice; see Foreign for variables and site files.
ParsedCommandLine resolve_options(const OptionTable& table, int argc, const char* const* argv,
                                  const std::string& positional_name = {},
                                  Foreign foreign = Foreign::kIgnore);

/// Throws Error kUsage for a GRADSYNC_* variable that is not an option of `known` and not left to
/// others (GRADSYNC_CONFIG, _SITE and _MAX_RESTARTS, which belongs to the Slurm templates, are
/// always known).
void reject_unknown_variables(const OptionTable& known, Foreign foreign = Foreign::kReject);

/// GRADSYNC_BATCH_PER_RANK for "batch-per-rank".
std::string variable_name(const std::string& option);

/// An option that every program has: no value of the program, and no key of files.
struct CommonOption {
  OptionSpec spec;
  Question question = Question::kNone;  ///< what it requests, if anything
};

/// All of them, without those that the table has itself, with the help of `program`. The reader and
/// the texts use this list.
std::vector<CommonOption> common_options(const OptionTable& table, const std::string& program);

/// The names of a table, in its order.
std::vector<std::string> option_names(const OptionTable& table);

/// The text of --print-config: name = value  # source, in the order of the table. It is a valid job
/// file.
std::string config_text(const OptionTable& table, const OptionValues& values);

/// The value as it is; base/cli/bound_option.h reads values of other types.
std::string text_option(const OptionValues& values, const std::string& name);

/// The values of a repeatable option, in the order given.
std::vector<std::string> list_option(const OptionValues& values, const std::string& name);

/// An Error kUsage about the value of an option: `why` is the end of a sentence that begins with
/// the place, as in "must divide by 4". Without a fix it names --help-all.
Error option_error(const OptionValues& values, const std::string& name, const std::string& why,
                   const std::string& fix = {});

/// What stands on a command line, before any other source is looked at.
struct CommandLine {
  struct Given {
    std::string name, value;
    std::string where;  ///< as the user wrote it: "--no-augment"
  };
  std::vector<Given> given;  ///< switches have the value "true" or "false"
  std::vector<std::string> positional;
};

/// Splits the command line by `table`. Long options, never abbreviated, and the letters of a table
/// that has some (`-b 8`, `-b8`). Throws Error kUsage for an unknown option (with the nearest), a
/// missing or surplus value, an option given twice.
/// `help` is the command that lists them, in fixes.
CommandLine parse_command_line(const OptionTable& table, int argc, const char* const* argv,
                               const std::string& help = "--help");

/// The words that parse_command_line takes after "--": names, and "no-" before those of switches.
std::vector<std::string> spellings(const OptionTable& table);

}  // namespace gradsync
