// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/checkpoint_info.h"

#include <charconv>
#include <set>

#include <fmt/format.h>

#include "base/error.h"
#include "options/option_roles.h"

namespace gradsync {

namespace {

const std::string kOptionPrefix = "option.", kProvenancePrefix = "provenance.";

const std::string& text_of(const TextMap& metadata, const std::string& name) {
  const auto found = metadata.find(name);
  if (found == metadata.end())
    throw Error(ExitCode::kBadData, fmt::format("its __metadata__ has no '{}'", name));
  return found->second;
}

template <typename Number>
Number number_of(const TextMap& metadata, const std::string& name) {
  const std::string& text = text_of(metadata, name);
  Number value{};
  const auto end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || last != end || !(value >= 0))
    throw Error(ExitCode::kBadData, fmt::format("its {} is '{}'", name, text));
  return value;
}

std::string value_or_nothing(const TextMap& texts, const std::string& name) {
  const auto found = texts.find(name);
  return found == texts.end() ? "" : found->second;
}

std::string says(const std::string& what, const std::string& theirs, const std::string& mine) {
  return fmt::format("{} is {} there, {} here", what, theirs.empty() ? "absent" : theirs,
                     mine.empty() ? "absent" : mine);
}

/// Whether a resumed run may have `value` regardless of the earlier value.
bool may_differ(const std::string& name, const std::string& value) {
  const TrainOption* option = declared_train_option(name);
  return option && (option->may_change || (!option->open.empty() && value == option->open));
}

/// The value as the option writes it: 25MiB and 26214400 are one. What it cannot read stays.
std::string one_spelling(const std::string& name, const std::string& value) {
  const TrainOption* option = declared_train_option(name);
  if (option == nullptr) return value;
  try {
    TrainOptions settings;
    option->value.read({{name, {value, "", name}}}, name, settings);
    return option->value.text(settings);
  } catch (const std::exception&) {
    return value;
  }
}

}  // namespace

CheckpointInfo describe_run(const RunInfo& info) {
  CheckpointInfo result;
  result.run_id = info.run_id;
  result.ranks = static_cast<std::int64_t>(info.topology.size());
  for (const ConfigEntry& entry : info.config)
    result.options[entry.name] = entry.value;
  for (const NamedText& entry : info.provenance)
    if (!entry.name.starts_with("env.")) result.provenance[entry.name] = entry.value;
  return result;
}

TextMap to_metadata(const CheckpointInfo& info) {
  TextMap metadata = {{"run_id", info.run_id},
                      {"ranks", std::to_string(info.ranks)},
                      {"iteration", std::to_string(info.iteration)},
                      {"epoch", std::to_string(info.epoch)},
                      {"step", std::to_string(info.step)},
                      {"journal_bytes", std::to_string(info.journal_bytes)},
                      {"elapsed_s", fmt::format("{}", info.elapsed_s)},
                      {"written", info.written}};
  for (const auto& [name, value] : info.options)
    metadata[kOptionPrefix + name] = value;
  for (const auto& [name, value] : info.provenance)
    metadata[kProvenancePrefix + name] = value;
  return metadata;
}

CheckpointInfo from_metadata(const TextMap& metadata) {
  CheckpointInfo info;
  info.run_id = text_of(metadata, "run_id");
  info.ranks = number_of<std::int64_t>(metadata, "ranks");
  info.iteration = number_of<std::int64_t>(metadata, "iteration");
  info.epoch = number_of<std::int64_t>(metadata, "epoch");
  info.step = number_of<std::int64_t>(metadata, "step");
  info.journal_bytes = number_of<std::int64_t>(metadata, "journal_bytes");
  info.elapsed_s = number_of<double>(metadata, "elapsed_s");
  info.written = text_of(metadata, "written");
  for (const auto& [name, value] : metadata) {
    if (name.starts_with(kOptionPrefix)) info.options[name.substr(kOptionPrefix.size())] = value;
    if (name.starts_with(kProvenancePrefix))
      info.provenance[name.substr(kProvenancePrefix.size())] = value;
  }
  return info;
}

std::optional<std::string> difference(const CheckpointInfo& theirs, const CheckpointInfo& mine) {
  if (theirs.ranks != mine.ranks)
    return says("the number of ranks", std::to_string(theirs.ranks), std::to_string(mine.ranks));
  std::set<std::string> names;
  for (const auto* options : {&theirs.options, &mine.options})
    for (const auto& [name, value] : *options)
      names.insert(name);
  for (const std::string& name : names) {
    const std::string there = value_or_nothing(theirs.options, name);
    const std::string here = value_or_nothing(mine.options, name);
    if (there != here && !may_differ(name, here) &&
        one_spelling(name, there) != one_spelling(name, here))
      return says(name, there, here);
  }
  const std::string data = "data_sha256";
  const std::string there = value_or_nothing(theirs.provenance, data);
  const std::string here = value_or_nothing(mine.provenance, data);
  if (there != here) return says("the SHA-256 of the data set", there, here);
  return std::nullopt;
}

std::optional<std::string> other_versions(const CheckpointInfo& theirs,
                                          const CheckpointInfo& mine) {
  std::string differences;
  for (const auto& [name, value] : mine.provenance) {
    const std::string there = value_or_nothing(theirs.provenance, name);
    if (there.empty() || there == value ||
        !(name == "program" || name == "libtorch" || name == "compiler" || name.starts_with("mpi")))
      continue;
    differences += (differences.empty() ? "" : "; ") + says(name, there, value);
  }
  if (differences.empty()) return std::nullopt;
  return differences;
}

}  // namespace gradsync
