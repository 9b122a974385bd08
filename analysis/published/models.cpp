#include "analysis/published/models.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

namespace gradsync::report::published {

namespace {

struct Model {
  std::string_view family, variant;
  double parameters;
};

/// Counts of gradsync's own networks (src/model) and of torchvision's. A new one is a line.
constexpr std::array<Model, 14> kModels = {{{"resnet18", "cifar", 11173962},
                                            {"resnet18", "imagenet", 11689512},
                                            {"resnet18", "imagenet stem, 10 classes", 11181642},
                                            {"resnet34", "imagenet", 21797672},
                                            {"resnet50", "imagenet", 25557032},
                                            {"vgg11", "bn cifar", 9231114},
                                            {"vgg11", "cifar", 9225610},
                                            {"vgg11", "bn imagenet", 132868840},
                                            {"vgg11", "imagenet", 132863336},
                                            {"vgg16", "imagenet", 138357544},
                                            {"alexnet", "imagenet", 61100840},
                                            {"lenet", "cifar", 61780},
                                            {"lenet", "cifar, 400-120-84-10", 62006},
                                            {"lenet", "mnist", 61706}}};

std::string letters_and_digits(const std::string& name) {
  std::string plain;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)))
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return plain;
}

// What the name says beside the family decides: "resnet18-imagenet" is the ImageNet network first.
bool names_variant(const std::string& plain, const Model& model) {
  const std::string first_word(model.variant.substr(0, model.variant.find_first_of(" ,")));
  return plain.size() > model.family.size() && plain.find(first_word) != std::string::npos;
}

std::vector<Model> candidates(const std::string& plain) {
  std::vector<Model> models;
  for (const Model& model : kModels)
    if (plain.starts_with(model.family)) models.push_back(model);
  std::stable_sort(models.begin(), models.end(), [&](const Model& a, const Model& b) {
    return names_variant(plain, a) > names_variant(plain, b);
  });
  return models;
}

}  // namespace

std::string with_commas(double whole_number) {
  std::string digits = fmt::format("{:.0f}", std::abs(whole_number));
  for (std::size_t at = digits.size(); at > 3; at -= 3)
    digits.insert(at - 3, 1, ',');
  return (whole_number < 0 ? "-" : "") + digits;
}

std::vector<Message> messages_of_model(const std::string& model) {
  std::vector<Message> messages;
  const std::vector<Model> models = candidates(letters_and_digits(model));
  for (const int width : {4, 2})
    for (const Model& one : models)
      messages.push_back({fmt::format("{} parameters ({} {}) of {} B", with_commas(one.parameters),
                                      one.family, one.variant, width),
                          one.parameters * width,
                          (width == 4 ? 0 : 1) + (&one == &models.front() ? 0 : 1)});
  return messages;
}

}  // namespace gradsync::report::published
