#pragma once

#include <string>
#include <vector>

#include "exchange/exchange.h"
#include "quantize/float_network.h"
#include "quantize/images.h"
#include "quantize/quantize_options.h"
#include "quantize/tensor_rows.h"

namespace gradsync::quantize {

/// How the activations of a network lie over calibration images, one entry a value of the plan;
/// the logits, which only a variant rounds, have theirs.
using ValueDistributions = std::vector<Distribution>;

/// Who computes what.
struct StudyRanks {
  Exchange& exchange;
  std::size_t threads = 1;
};

/// Two passes over the images, which the ranks share out; equal on all of them, to the bit,
/// whatever their number and that of threads. Throws Error kBadData (rank, layer) if an activation
/// is not finite.
ValueDistributions observe_activations(const StudyRanks& ranks, const FloatModel& model,
                                       const ImageRange& images);

/// "input" for value 0, else the name of the node.
std::string value_name(const Plan& plan, std::size_t value);

/// Of all values but maxima, whose integers are those of their input, and the logits. Throws Error
/// kBadData, naming the layer, if all its activations are the same.
ValueQuantizers quantize_values(const Plan& plan, const ValueDistributions& values,
                                const ActivationScheme& scheme);
/// Of the logits. Throws Error as quantize_values.
Quantizer quantize_logits(const Plan& plan, const ValueDistributions& values,
                          const ActivationScheme& scheme);

/// What each value became, from integers and real numbers of the first images of `images`.
std::vector<QuantizedTensorRow> activation_rows(const FloatModel& model, const Int8Model& quantized,
                                                const ValueDistributions& values,
                                                const ImageRange& images);

}  // namespace gradsync::quantize
