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

ProcessResult run_gnuplot(const std::vector<std::string>& args, const ProcessOptions& options) {
  try {
    return run_process(args, options);
  } catch (const Error&) {
    throw Error(ExitCode::kEnvironment, "gnuplot cannot be started", kInstall);
  }
}

void draw(const std::string& name, const std::string& format, const fs::path& folder) {
  const fs::path target = folder / (name + "." + format);
  TemporaryFile picture(temporary_beside(target));
  const TemporaryFile messages(picture.path().string() + ".log");
  ProcessOptions options;
  options.working_folder = folder;
  options.stdout_path = fs::absolute(messages.path());
  options.stderr_path = fs::absolute(messages.path());
  const ProcessResult result = run_gnuplot({"gnuplot", "-d", "-c", name + ".gnuplot", format,
                                            picture.path().filename().string(), name + ".csv"},
                                           options);
  if (!result.succeeded() || !fs::exists(picture.path()))
    throw Error(ExitCode::kInputOutput, fmt::format("gnuplot ended with {}: {}", result.text(),
                                                    read_text_file(messages.path())));
  close_file(open_for_reading(picture.path()), picture.path());
  picture.rename_to(target);
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
