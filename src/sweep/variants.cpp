#include "sweep/variants.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include <fmt/format.h>

#include "base/error.h"
#include "base/parse.h"

namespace gradsync::sweep {

namespace {

constexpr const char* kForm = "write it as: variant = warmup-lars: optimizer=lars warmup-epochs=2";

[[noreturn]] void refuse_variant(const KeyValue& entry, const std::string& why,
                                 const std::string& fix = kForm) {
  throw Error(ExitCode::kUsage, fmt::format("{}: {}: {}", entry.where, entry.key, why), fix);
}

bool is_name(std::string_view name) {
  const auto fits = [](unsigned char c) {
    return std::isalnum(c) || c == '.' || c == '_' || c == '+' || c == '-';
  };
  return !name.empty() && std::all_of(name.begin(), name.end(), fits);
}

KeyValue option_of(const KeyValue& entry, const std::string& text,
                   const std::vector<std::string>& known) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos) refuse_variant(entry, fmt::format("\"{}\" has no =", text));
  const std::string key = text.substr(0, equals), value = text.substr(equals + 1);
  if (std::find(known.begin(), known.end(), key) == known.end())
    refuse_variant(entry,
                   fmt::format("{} is not an option of a run{}", key, did_you_mean(key, known)),
                   "a variant holds options of `gradsync-train --help`, and ranks");
  if (value.empty()) refuse_variant(entry, fmt::format("{} has no value", key));
  return {key, value, entry.where, true};
}

}  // namespace

const KeyValue* Variant::option(const std::string& key) const {
  const auto same = [&](const KeyValue& option) { return option.key == key; };
  const auto found = std::find_if(options.begin(), options.end(), same);
  return found == options.end() ? nullptr : &*found;
}

Variant variant_of(const KeyValue& entry, const std::vector<std::string>& known) {
  const std::size_t colon = entry.value.find(':');
  if (colon == std::string::npos) refuse_variant(entry, "there is no colon after its name");
  Variant variant{std::string(trimmed(entry.value.substr(0, colon))), {}, entry.where};
  if (!is_name(variant.name))
    refuse_variant(entry, fmt::format("\"{}\" is not a name", variant.name),
                   "use letters, digits, '.', '_', '+' and '-'");
  for (const auto& text : split_list(entry.value.substr(colon + 1), ' ')) {
    if (text.empty()) continue;
    const KeyValue option = option_of(entry, text, known);
    if (variant.option(option.key) != nullptr)
      refuse_variant(entry, fmt::format("{} is given twice", option.key), "remove one of the two");
    variant.options.push_back(option);
  }
  return variant;
}

void drop_option(std::vector<Variant>& variants, const std::string& key) {
  for (auto& variant : variants)
    std::erase_if(variant.options, [&](const KeyValue& option) { return option.key == key; });
}

const Variant* find_variant(const std::vector<Variant>& variants, const std::string& name) {
  const auto same = [&](const Variant& variant) { return variant.name == name; };
  const auto found = std::find_if(variants.begin(), variants.end(), same);
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
