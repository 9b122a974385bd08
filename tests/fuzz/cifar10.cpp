#include "data/cifar10.h"

#include <algorithm>

#include "data/manifest.h"
#include "fuzz/targets.h"

namespace gradsync::fuzz {

/// The input: the manifest up to the first NUL, then the six files, each with one part of the rest.
void cifar10(Input input) {
  static const Folder folder;
  const std::string_view text = text_of(input);
  const std::string_view manifest = text.substr(0, text.find('\0'));
  const std::string_view images = text.substr(std::min(text.size(), manifest.size() + 1));
  const std::size_t part = images.size() / (kTrainFiles.size() + 1);
  folder.write(Manifest::kFile, manifest);
  for (std::size_t i = 0; i < kTrainFiles.size(); ++i)
    folder.write(kTrainFiles[i], images.substr(i * part, part));
  folder.write(kTestFile, images.substr(kTrainFiles.size() * part));
  const Cifar10 data(folder.path());
  for (const Split split : {Split::kTrain, Split::kTest})
    for (std::int64_t image = 0; image < std::min<std::int64_t>(data.size(split), 4); ++image) {
      data.pixels(split, image);
      data.label(split, image);
    }
  data.verify();
  data.class_counts(Split::kTrain);
}

}  // namespace gradsync::fuzz
