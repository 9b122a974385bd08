// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/model/scaling_model.h"
#include "analysis/read/curve_file.h"

namespace gradsync::report {

/// What is changed against the recorded run; empty members stay as recorded.
struct WhatIf {
  std::optional<double> bucket_cap_bytes, first_bucket_bytes;
  std::optional<double> wire_bytes;  ///< of one gradient value on the wire: 4 or 2
  std::optional<double> bandwidth_bytes_per_s, latency_s;
  std::optional<double> ranks, batch;
  std::optional<CurveFile> network;                 ///< whose curves replace the laws
  std::vector<Curves> network_curves;               ///< of `network`: read_network
  std::map<CollectiveKind, LawEntry> network_laws;  ///< for one family: with_network_laws
  double network_slowdown = 1;  ///< of training over its calibration, at the messages' sizes
  std::string text;             ///< as it was given
};

/// Reads "bucket-cap=4MiB,first-bucket=1MiB,wire=bf16,bandwidth=10Gbit/s,latency=20us,ranks=16,
/// batch=64,network=FILE:ranks=8"; all keys are optional, none twice. A bandwidth is in bits, as
/// links are sold, or in bytes (1.25GB/s). Throws Error kUsage (unknown key with the nearest, or
/// what a value must be).
WhatIf parse_what_if(const std::string& text);

/// Reads the file that `network` names, if it does; what the file does not hold as it should be.
/// Throws Error as read_curve_file does.
std::vector<std::string> read_network(WhatIf& change);

/// The change with the laws of its network for the collectives of a family in place of its curves.
/// They are fitted to sizes within a factor of 4 of the family's messages where the curves have
/// three or more, and so is the calibration that their slowdown is measured against.
WhatIf with_network_laws(const FamilyFit& fit, WhatIf change);

struct WhatIfResult {
  Prediction parts;
  std::size_t messages = 0;
  double bytes = 0;  ///< payload of all messages of one rank
  double exposed_share() const { return (parts.exposed_s + parts.wait_s) / parts.total_s(); }
};

/// Replays the cell's own exchange with the changes. Compute, but for what the exchange takes from
/// it, and other are the cell's medians; another batch stretches compute and the ready times by the
/// family's compute law; bandwidth and latency replace β = 1/bandwidth and α, the slowdown of
/// training with them; the laws of a network replace those of the family and are slowed down as
/// these are (NaN for a collective that its file does not hold). Modes that overlap get other
/// buckets for a cap or a first bucket; for the others these change nothing. Converting to a
/// narrower type costs nothing here.
WhatIfResult what_if(const FamilyFit& fit, const StudyCell& cell, const WhatIf& change);

/// Bytes of the gradients that an iteration exchanges, before they are narrowed: what caps count.
double gradient_bytes(const FamilyFit& fit, const StudyCell& cell);

/// The caps to try: 64 KiB, 128 KiB, … 256 MiB, up to the first that holds all bytes.
std::vector<double> cap_ladder(double total_bytes);

/// The largest of these caps whose iteration, with the change, is at most 0.5 % longer than the
/// shortest, as --bucket-cap auto chooses: fewer, larger messages rest less on the law's latency.
/// Nothing where no iteration can be predicted.
std::optional<double> best_cap(const FamilyFit& fit, const StudyCell& cell, WhatIf change);

}  // namespace gradsync::report
