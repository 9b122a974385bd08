#include "analysis/plots/draw.h"

#include <array>

#include <fmt/format.h>

#include "support/error.h"
#include "support/file.h"
#include "support/process.h"

namespace gradsync {

namespace {

namespace fs = std::filesystem;

constexpr const char* kInstall =
    "install it (Debian: apt-get install gnuplot-nox), or draw with the script: gnuplot -c "
    "NAME.gnuplot png NAME.png NAME.csv";

/// Removes files when it goes.
struct Leftovers {
  std::vector<fs::path> paths;
  ~Leftovers() {
    std::error_code ignored;
    for (const fs::path& path : paths)
      fs::remove(path, ignored);
  }
};

ProcessResult run_gnuplot(const std::vector<std::string>& args, const ProcessOptions& options) {
  try {
    return run_process(args, options);
  } catch (const Error&) {
    throw Error(ExitCode::kEnvironment, "gnuplot cannot be started", kInstall);
  }
}

void draw(const std::string& name, const std::string& format, const fs::path& folder) {
  const fs::path target = folder / (name + "." + format);
  const fs::path picture = target.string() + ".tmp-" + random_suffix();
  const fs::path messages = picture.string() + ".log";
  const Leftovers leftovers{{picture, messages}};
  ProcessOptions options;
  options.working_folder = folder;
  options.stdout_path = fs::absolute(messages);
  options.stderr_path = fs::absolute(messages);
  const ProcessResult result = run_gnuplot({"gnuplot", "-d", "-c", name + ".gnuplot", format,
                                            picture.filename().string(), name + ".csv"},
                                           options);
  if (!result.succeeded() || !fs::exists(picture))
    throw Error(ExitCode::kInputOutput,
                fmt::format("gnuplot ended with {}: {}", result.text(), read_text_file(messages)));
  close_file(UniqueFd(open_for_reading(picture)), picture);
  std::error_code failure;
  fs::rename(picture, target, failure);
  if (failure)
    throw Error(ExitCode::kCannotCreate,
                fmt::format("cannot write '{}': {}", target.string(), failure.message()));
}

}  // namespace

void write_figure(const Figure& figure, const std::string& name, const fs::path& folder) {
  write_file_atomically(folder / (name + ".csv"), figure.csv);
  write_file_atomically(folder / (name + ".gnuplot"), figure.script);
}

std::vector<fs::path> draw_figure(const std::string& name, const fs::path& folder) {
  std::vector<fs::path> pictures;
  for (const char* format : {"png", "svg"}) {
    draw(name, format, folder);
    pictures.push_back(folder / (name + "." + format));
  }
  return pictures;
}

}  // namespace gradsync
