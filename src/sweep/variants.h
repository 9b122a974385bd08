#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/cli/key_values.h"

/// Bundles of options under a name, which together are one axis of a grid:
///   variant = plain:
///   variant = warmup-lars: optimizer=lars lr=2 warmup-epochs=2
namespace gradsync::sweep {

/// One `variant` line.
struct Variant {
  std::string name;               ///< letters, digits, `.`, `_`, `+`, `-`
  std::vector<KeyValue> options;  ///< of the trainer, and `ranks`; each key at most once
  std::string where;              ///< "jobs/large-batch.cfg:12"

  /// The option of a key; null where the variant leaves it alone.
  const KeyValue* option(const std::string& key) const;
};

/// What an axis of variants is called: the key of its lines.
inline constexpr const char* kVariantKey = "variant";

/// Reads one line. `known` are the keys that may stand in it. Throws Error kUsage with file:line if
/// there is no name or colon, or a key is unknown (with the nearest), given twice or without a
/// value.
Variant variant_of(const KeyValue& entry, const std::vector<std::string>& known);

/// Takes a key out of every variant: what stands there gives way to --set.
void drop_option(std::vector<Variant>& variants, const std::string& key);

/// The variant of a name; null if there is none.
const Variant* find_variant(const std::vector<Variant>& variants, const std::string& name);

/// `choice` (key -> value, the variant's name under kVariantKey) with the options of that variant
/// in place of the choice's own and of their rivals.
void apply_variant(const std::vector<Variant>& variants,
                   std::map<std::string, std::string>& choice);

/// Of the ways to give a batch (batch-per-rank, batch-global, batch-schedule) one counts: the other
/// two, if `key` is one of them.
std::vector<std::string> rivals_of(const std::string& key);

}  // namespace gradsync::sweep
