#include "data/manifest.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json_number.h"
#include "data/cifar10.h"

namespace gradsync {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::int64_t kMostRecords = 1'000'000'000;

Manifest::File parse_file(const json& entry) {
  Manifest::File file{whole_number<std::int64_t>(entry.at("records")), entry.at("sha256")};
  if (file.records < 0 || file.records > kMostRecords) {
    throw Error(ExitCode::kBadData, fmt::format("records is {}", file.records));
  }
  return file;
}

Manifest parse(const json& document) {
  if (document.at("format") != Manifest::kFormat) {
    throw Error(ExitCode::kBadData, fmt::format("its format is not \"{}\"", Manifest::kFormat));
  }
  Manifest manifest;
  manifest.seed = whole_number<std::uint64_t>(document.at("seed"));
  for (const char* name : kTrainFiles) {
    manifest.files[name] = parse_file(document.at("files").at(name));
  }
  manifest.files[kTestFile] = parse_file(document.at("files").at(kTestFile));
  return manifest;
}

}  // namespace

std::optional<Manifest> read_manifest(const fs::path& folder) {
  const fs::path path = folder / Manifest::kFile;
  if (!fs::exists(path)) return std::nullopt;
  try {
    return parse(json::parse(read_text_file(path)));
  } catch (const json::exception& error) {
    throw Error(ExitCode::kBadData, fmt::format("'{}': {}", path.string(), error.what()),
                "synthesize the data set again");
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("'{}': {}", path.string(), error.what()),
                "synthesize the data set again");
  }
}

std::string manifest_text(const Manifest& manifest) {
  json document = {{"format", Manifest::kFormat}, {"seed", manifest.seed}};
  for (const auto& [name, file] : manifest.files) {
    document["files"][name] = {{"records", file.records}, {"sha256", file.sha256}};
  }
  return document.dump(2) + "\n";
}

}  // namespace gradsync
