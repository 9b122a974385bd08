#pragma once

#include <string>
#include <vector>

namespace gradsync::report::published {

/// A number of bytes that one gradient may have had.
struct Message {
  std::string text;  ///< "11,173,962 parameters (resnet18, CIFAR) of 4 B"
  double bytes = 0;
  int cost = 0;  ///< 0 for what the name of the model says, more for what it may have meant
};

/// Candidates for a model by its published name: known parameter counts, 4 and 2 bytes each; the
/// likeliest first. Empty for an unknown model.
std::vector<Message> messages_of_model(const std::string& model);

/// "11,173,962".
std::string with_commas(double whole_number);

}  // namespace gradsync::report::published
