// SPDX-License-Identifier: BSD-3-Clause
#include "sweep/job_file.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "base/cli/options.h"
#include "base/error.h"
#include "base/launcher.h"
#include "base/ranges.h"
#include "options/option_roles.h"
#include "options/options.h"

namespace gradsync::sweep {

namespace {

const std::vector<std::string>& repeatable_keys() {
  static const std::vector<std::string> keys = {"exclude", kVariantKey};
  return keys;
}

constexpr std::int64_t kMaxRanks = 1'000'000, kMaxRanksPerNode = 4096, kMaxRepeats = 1000;

std::vector<std::string> trainer_keys() {
  std::vector<std::string> keys = option_names(train_option_table());
  std::erase_if(keys, [](const std::string& key) { return key == "output" || key == "compare"; });
  return keys;
}

[[noreturn]] void refuse(const KeyValue& entry, const std::string& why,
                         const std::string& fix = {}) {
  throw Error(ExitCode::kUsage, fmt::format("{}: {}: {}", entry.where, entry.key, why), fix);
}

bool is_batch(const std::string& key) {
  return key == "batch-per-rank" || key == "batch-global";
}

std::int64_t integer(const KeyValue& entry, const std::string& text, std::int64_t low,
                     std::int64_t high);

// "32, 128, ..." is 32, 128, 512 and so on, up to the largest batch: memory ends it before.
void extend_ladder(const KeyValue& entry, std::vector<std::string>& values) {
  if (values.empty() || (values.back() != "..." && values.back() != "…")) return;
  values.pop_back();
  const std::string fix = "write it as: batch-per-rank = 32, 128, ...";
  if (!is_batch(entry.key) || values.size() < 2)
    refuse(entry, "... continues two batch sizes or more, and nothing else", fix);
  const auto before = integer(entry, values[values.size() - 2], 1, kMaxBatchPerRank);
  std::int64_t last = integer(entry, values.back(), 1, kMaxBatchPerRank);
  const std::int64_t ratio = last / before;
  if (ratio < 2 || last % before != 0)
    refuse(entry, fmt::format("{} is no multiple of {}, so ... has no ratio", last, before), fix);
  const std::int64_t largest = entry.key == "batch-per-rank" ? kMaxBatchPerRank : kMaxIterations;
  for (; last <= largest / ratio; values.push_back(std::to_string(last)))
    last *= ratio;
}

// The values of an axis or a condition.
std::vector<std::string> list_of(const KeyValue& entry) {
  auto values = entry.quoted ? std::vector{entry.value} : split_list(entry.value, ',');
  extend_ladder(entry, values);
  std::set<std::string> seen;
  for (const auto& value : values) {
    if (value.empty())
      refuse(entry, values.size() == 1 ? "there is no value" : "a value of the list is empty",
             "give at least one value, or remove the line");
    if (!seen.insert(value).second) refuse(entry, fmt::format("{} is listed twice", value));
  }
  return values;
}

std::int64_t integer(const KeyValue& entry, const std::string& text, std::int64_t low,
                     std::int64_t high) {
  const std::string range = fmt::format("give a whole number from {} to {}", low, high);
  std::int64_t value = 0;
  try {
    value = parse_integer(text);
  } catch (const Error& error) {
    refuse(entry, error.what(), range);
  }
  if (value < low || value > high)
    refuse(entry, fmt::format("\"{}\" is out of range", text), range);
  return value;
}

Axis axis_of(const KeyValue& entry) {
  Axis axis{entry.key, list_of(entry), entry.where};
  if (entry.key != "ranks") return axis;
  for (auto& value : axis.values)
    value = std::to_string(integer(entry, value, 1, kMaxRanks));
  return axis;
}

Exclusion::Condition condition_of(const KeyValue& entry, const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos)
    refuse(entry, fmt::format("\"{}\" has no =", text), "write it as: exclude = ranks=1 sync=ddp");
  const std::string key = text.substr(0, equals);
  std::vector<std::string> known = trainer_keys();
  known.push_back("ranks");
  known.push_back(kVariantKey);
  if (!contains(known, key))
    refuse(entry, fmt::format("{} is not an axis{}", key, did_you_mean(key, known)));
  return {key,
          list_of({is_batch(key) ? key : entry.key, text.substr(equals + 1), entry.where, false})};
}

constexpr const char* kVariantForm =
    "write it as: variant = warmup-lars: optimizer=lars warmup-epochs=2";

bool is_name(std::string_view name) {
  const auto fits = [](unsigned char c) {
    return std::isalnum(c) || c == '.' || c == '_' || c == '+' || c == '-';
  };
  return !name.empty() && std::ranges::all_of(name, fits);
}

KeyValue option_of(const KeyValue& entry, const std::string& text,
                   const std::vector<std::string>& known) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos)
    refuse(entry, fmt::format("\"{}\" has no =", text), kVariantForm);
  const std::string key = text.substr(0, equals), value = text.substr(equals + 1);
  if (!contains(known, key))
    refuse(entry, fmt::format("{} is not an option of a run{}", key, did_you_mean(key, known)),
           "a variant holds options of `gradsync-train --help`, and ranks");
  if (value.empty()) refuse(entry, fmt::format("{} has no value", key), kVariantForm);
  return {key, value, entry.where, true};
}

// Reads one line. `known` are the keys that may stand in it.
Variant variant_of(const KeyValue& entry, const std::vector<std::string>& known) {
  const std::size_t colon = entry.value.find(':');
  if (colon == std::string::npos) refuse(entry, "there is no colon after its name", kVariantForm);
  Variant variant{std::string(trimmed(entry.value.substr(0, colon))), {}, entry.where};
  if (!is_name(variant.name))
    refuse(entry, fmt::format("\"{}\" is not a name", variant.name),
           "use letters, digits, '.', '_', '+' and '-'");
  for (const auto& text : split_list(entry.value.substr(colon + 1), ' ')) {
    if (text.empty()) continue;
    const KeyValue option = option_of(entry, text, known);
    if (variant.option(option.key) != nullptr)
      refuse(entry, fmt::format("{} is given twice", option.key), "remove one of the two");
    variant.options.push_back(option);
  }
  return variant;
}

// Takes a key out of every variant: what stands there gives way to --set.
void drop_option(std::vector<Variant>& variants, const std::string& key) {
  for (auto& variant : variants)
    std::erase_if(variant.options, [&](const KeyValue& option) { return option.key == key; });
}

// The axis of all `variant` lines stands where the first one does.
void add_variant(const KeyValue& entry, Job& job) {
  std::vector<std::string> known = trainer_keys();
  known.push_back("ranks");
  Variant variant = variant_of(entry, known);
  for (auto& option : variant.options)
    if (option.key == "ranks")
      option.value = std::to_string(integer(option, option.value, 1, kMaxRanks));
  if (const Variant* other = find_variant(job.variants, variant.name); other != nullptr)
    refuse(entry, fmt::format("{} is given twice, first at {}", variant.name, other->where));
  if (job.variants.empty()) job.axes.push_back({kVariantKey, {}, entry.where});
  std::ranges::find(job.axes, kVariantKey, &Axis::key)->values.push_back(variant.name);
  job.variants.push_back(std::move(variant));
}

// An axis whose values a variant would hide: cells of other names would be the same run.
void require_no_axis_of(const Job& job, const Variant& variant, const KeyValue& option) {
  for (const auto& axis : job.axes) {
    const bool hidden = axis.key == option.key || contains(rivals_of(option.key), axis.key);
    if (!hidden || axis.values.size() < 2) continue;
    throw Error(ExitCode::kUsage,
                fmt::format("{}: variant {} sets {}, and {} is an axis ({})", variant.where,
                            variant.name, option.key, axis.key, axis.where),
                fmt::format("give {} in one of the two places", option.key));
  }
}

Exclusion exclusion_of(const KeyValue& entry) {
  Exclusion exclusion{{}, entry.value, entry.where};
  for (const auto& text : option_words(entry.value))
    exclusion.conditions.push_back(condition_of(entry, text));
  if (exclusion.conditions.empty())
    refuse(entry, "there is no condition", "write it as: exclude = ranks=1 sync=ddp");
  return exclusion;
}

bool switch_of(const KeyValue& entry) {
  try {
    return parse_switch(entry.value);
  } catch (const Error& error) {
    refuse(entry, error.what(), "give yes or no");
  }
}

CellOrder order_of(const KeyValue& entry) {
  if (entry.value == "as-written") return CellOrder::kAsWritten;
  if (entry.value == "random") return CellOrder::kRandom;
  refuse(entry, fmt::format("\"{}\" is not an order", entry.value), "give as-written or random");
}

std::string name_of(const KeyValue& entry) {
  const auto fits = [](unsigned char c) {
    return std::isalnum(c) || c == '.' || c == '_' || c == '-';
  };
  const std::string& name = entry.value;
  if (!name.empty() && name[0] != '.' && std::ranges::all_of(name, fits)) return name;
  refuse(entry, fmt::format("\"{}\" is not a name", name), "use letters, digits, '.', '_' and '-'");
}

std::filesystem::path folder_in(const KeyValue& entry) {
  if (entry.value.empty()) refuse(entry, "the folder has no name");
  return entry.value;
}

// A key of a job file that is not the trainer's.
struct JobKey {
  const char *name, *example, *meaning;  // the last two for --help
  void (*read)(const KeyValue& entry, Job& job);
};

std::vector<std::string> words_of(const KeyValue& entry) {
  try {
    return option_words(entry.value);
  } catch (const Error& error) {
    refuse(entry, error.what());
  }
}

// A word that belongs to no option would be the program that mpirun or srun starts in place of the
// trainer. No option has more than two values.
std::vector<std::string> launcher_words(const KeyValue& entry) {
  std::vector<std::string> words = words_of(entry);
  int values = 0;  // that may still follow
  for (const std::string& word : words) {
    if (!word.starts_with('-') && values-- == 0)
      refuse(entry, fmt::format("\"{}\" belongs to no option", word),
             "give options, and their values behind them");
    if (word.starts_with('-')) values = word.find('=') == std::string::npos ? 2 : 0;
  }
  return words;
}

using Entry = const KeyValue&;
constexpr JobKey kJobKeys[] = {
    {"ranks", "1, 2, 4", "an axis, too [1]",
     [](Entry entry, Job& job) { job.axes.push_back(axis_of(entry)); }},
    {kVariantKey, "NAME: KEY=VALUE …", "options under a name; all such lines together are one axis",
     add_variant},
    {"repeats", "3", "runs of each cell [1]",
     [](Entry entry, Job& job) { job.repeats = integer(entry, entry.value, 1, kMaxRepeats); }},
    {"exclude", "sync=none ranks=2,4", "leaves out cells that meet all conditions; may be repeated",
     [](Entry entry, Job& job) { job.exclusions.push_back(exclusion_of(entry)); }},
    {"name", "my-study", "[the file's name]",
     [](Entry entry, Job& job) { job.name = name_of(entry); }},
    {"results", "FOLDER", "[results/<name>]",
     [](Entry entry, Job& job) { job.results = folder_in(entry); }},
    {"ranks-per-node", "4", "srun, slurm: ranks on one node [those of the allocation]",
     [](Entry entry, Job& job) {
       job.ranks_per_node = integer(entry, entry.value, 1, kMaxRanksPerNode);
     }},
    {"gpus-per-rank", "1", "slurm: GPUs the job arrays ask for, 0 or 1 [0]",
     [](Entry entry, Job& job) { job.gpus_per_rank = integer(entry, entry.value, 0, 1); }},
    {"interleave", "yes|no", "cells that may be contenders: one job in turn, or one each [yes]",
     [](Entry entry, Job& job) { job.interleave = switch_of(entry); }},
    {"order", "as-written|random", "random: by order-seed [as-written]",
     [](Entry entry, Job& job) { job.order = order_of(entry); }},
    {"order-seed", "1", "[1]",
     [](Entry entry, Job& job) {
       constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
       job.order_seed = static_cast<std::uint64_t>(integer(entry, entry.value, 0, kMax));
     }},
    {"mpirun-options", "…", "words put on mpirun's command line",
     [](Entry entry, Job& job) { job.mpirun_options = launcher_words(entry); }},
    {"srun-options", "…", "words put on srun's command line",
     [](Entry entry, Job& job) { job.srun_options = launcher_words(entry); }},
    {"sbatch-options", "…", "slurm: words for sbatch: --time=2:00:00",
     [](Entry entry, Job& job) { job.sbatch_options = launcher_words(entry); }},
    {"report-options", "…", "words put on gradsync-report's command line",
     [](Entry entry, Job& job) { job.report_options = words_of(entry); }}};

const JobKey* find_job_key(const std::string& name) {
  const auto found = std::ranges::find(kJobKeys, name, &JobKey::name);
  return found == std::end(kJobKeys) ? nullptr : found;
}

void require_known(const KeyValue& entry) {
  if (contains(trainer_keys(), entry.key) || find_job_key(entry.key) != nullptr) return;
  if (entry.key == "output")
    refuse(entry, "the sweep names the run files itself",
           "give the folder with `results = FOLDER`");
  if (entry.key == "compare")
    refuse(entry, "the sweep compares the cells that differ in what ranks exchange",
           "list the modes, as sync = none, ddp");
  std::vector<std::string> known = trainer_keys();
  for (const JobKey& key : kJobKeys)
    known.emplace_back(key.name);
  throw Error(
      ExitCode::kUsage,
      fmt::format("{}: {} is not a key of a job file{}", entry.where, entry.key,
                  did_you_mean(entry.key, known)),
      "the keys are the options of `gradsync-train --help` and those of `gradsync-sweep --help`");
}

void override_entry(std::vector<KeyValue>& entries, const KeyValue& override) {
  const auto same = std::ranges::find(entries, override.key, &KeyValue::key);
  if (same == entries.end() || contains(repeatable_keys(), override.key))
    entries.push_back(override);
  else
    *same = override;
}

// What gives way to an override although its key is another, or may stand in many lines.
bool gives_way(const KeyValue& entry, const KeyValue& override) {
  if (override.key == kVariantKey) return entry.key == kVariantKey;
  return contains(rivals_of(override.key), entry.key);
}

std::vector<KeyValue> overridden(const std::vector<KeyValue>& entries,
                                 const std::vector<KeyValue>& overrides) {
  std::vector<KeyValue> all = entries;
  for (const auto& override : overrides)
    std::erase_if(all, [&](const KeyValue& entry) { return gives_way(entry, override); });
  for (const auto& override : overrides)
    override_entry(all, override);
  return all;
}

void add_environment(Job& job) {
  if (!variable("GRADSYNC_CONFIG").empty())
    throw Error(ExitCode::kUsage, "GRADSYNC_CONFIG would reach each cell, and not the grid",
                "write its lines into the job file, and unset GRADSYNC_CONFIG");
  for (const auto& key : trainer_keys()) {
    const std::string name = variable_name(key), value = variable(name);
    if (!value.empty() && !contains(job.axes, key, &Axis::key))
      job.axes.push_back({key, {value}, name});
  }
}

KeyValue override_of(const std::string& text) {
  const std::string where = "--set " + text.substr(0, text.find('='));
  std::vector<KeyValue> entries;
  if (text.find('=') != std::string::npos) entries = parse_key_values(text, where);
  if (entries.size() != 1)
    throw Error(ExitCode::kUsage, where + ": this is not KEY=VALUE",
                "write it as: --set ranks=1,2");
  entries.front().where = where;
  return entries.front();
}

}  // namespace

std::vector<std::string> option_words(const std::string& text) {
  std::vector<std::string> words;
  bool inside = false;  // a word
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool is_blank = c == ' ' || c == '\t';
    if (quote == 0 && is_blank) {
      inside = false;
      continue;
    }
    if (!inside) words.emplace_back();
    inside = true;
    if (quote == 0 && (c == '"' || c == '\''))
      quote = c;
    else if (c == quote)
      quote = 0;
    else if (quote == 0 && c == '\\' && i + 1 < text.size())
      words.back() += text[++i];
    else
      words.back() += c;
  }
  if (quote != 0)
    throw Error(ExitCode::kUsage, fmt::format("the closing {} is missing: {}", quote, text));
  return words;
}

std::string job_file_help() {
  std::string text =
      "Keys of a job file (key = value, # begins a comment)\n"
      "  any option of gradsync-train    a list with commas is an axis of the grid; \"…\" is never "
      "a "
      "list.\n"
      "                                  One that the file leaves out is taken from "
      "GRADSYNC_<NAME>.\n"
      "  batch-per-rank = 32, 128, ...   an open ladder: times 4 until memory ends it\n";
  for (const auto& [name, example, meaning, read] : kJobKeys)
    text += fmt::format("  {:32}{}\n", fmt::format("{} = {}", name, example), meaning);
  return text;
}

Job make_job(const std::vector<KeyValue>& entries, const std::vector<KeyValue>& overrides,
             const std::string& default_name) {
  require_unique_keys(entries, repeatable_keys());
  require_unique_keys(overrides, repeatable_keys());

  Job job;
  for (const auto& entry : overridden(entries, overrides)) {
    require_known(entry);
    if (const JobKey* key = find_job_key(entry.key))
      key->read(entry, job);
    else
      job.axes.push_back(axis_of(entry));
  }
  for (const auto& override : overrides) {
    drop_option(job.variants, override.key);
    for (const auto& rival : rivals_of(override.key))
      drop_option(job.variants, rival);
  }
  for (const auto& variant : job.variants)
    for (const auto& option : variant.options)
      require_no_axis_of(job, variant, option);
  add_environment(job);
  if (!contains(job.axes, "ranks", &Axis::key)) job.axes.push_back({"ranks", {"1"}, "default"});
  if (job.name.empty()) job.name = name_of({"name", default_name, "the job file's name", false});
  if (job.results.empty()) job.results = std::filesystem::path("results") / job.name;
  return job;
}

Job read_job(const std::filesystem::path& file, const std::vector<std::string>& sets,
             const std::vector<KeyValue>& trainer_options) {
  std::vector<KeyValue> overrides = each(sets, override_of);
  overrides.insert(overrides.end(), trainer_options.begin(), trainer_options.end());
  const std::vector<KeyValue> entries = read_key_values(file);
  if (entries.empty() && overrides.empty())
    throw Error(ExitCode::kUsage, file.string() + ": there is no key in it",
                "gradsync-sweep --help-all lists the keys of a job file");
  return make_job(entries, overrides, file.stem().string());
}

const KeyValue* Variant::option(const std::string& key) const {
  const auto found = std::ranges::find(options, key, &KeyValue::key);
  return found == options.end() ? nullptr : &*found;
}

const Variant* find_variant(const std::vector<Variant>& variants, const std::string& name) {
  const auto found = std::ranges::find(variants, name, &Variant::name);
  return found == variants.end() ? nullptr : &*found;
}

void apply_variant(const std::vector<Variant>& variants,
                   std::map<std::string, std::string>& choice) {
  const auto name = choice.find(kVariantKey);
  const Variant* variant = name == choice.end() ? nullptr : find_variant(variants, name->second);
  if (variant == nullptr) return;
  for (const auto& option : variant->options) {
    for (const auto& rival : rivals_of(option.key))
      if (variant->option(rival) == nullptr) choice.erase(rival);
    choice[option.key] = option.value;
  }
}

std::vector<std::string> rivals_of(const std::string& key) {
  std::vector<std::string> ways = {"batch-per-rank", "batch-global", "batch-schedule"};
  if (std::erase(ways, key) == 0) return {};
  return ways;
}

}  // namespace gradsync::sweep
