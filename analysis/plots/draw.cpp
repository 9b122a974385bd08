#include "analysis/plots/draw.h"

#include <array>
#include <string_view>

#include <fmt/format.h>

#include "analysis/plots/svg_figure.h"
#include "base/error.h"
#include "base/file.h"
#include "base/process.h"

namespace gradsync::report {

namespace {

namespace fs = std::filesystem;

constexpr const char* kInstall =
    "install it (Debian: apt-get install librsvg2-bin), or convert the SVG files with another "
    "program";

/// A format of rsvg-convert, and the size of a pixel of the SVG: 1.5 pixels, or 0.75 points.
struct ImageFormat {
  const char *format, *zoom;
};
constexpr std::array<ImageFormat, 2> kPictures = {{{"png", "1.5"}, {"pdf", "1"}}};

ProcessResult run_rsvg(const std::vector<std::string>& args, const ProcessOptions& options) {
  try {
    return run_process(args, options);
  } catch (const Error&) {
    throw Error(ExitCode::kEnvironment, "rsvg-convert cannot be started", kInstall);
  }
}

// cairo before 1.17 writes the time whatever SOURCE_DATE_EPOCH says. The length stays, so that the
// offsets in the file stay right.
std::string without_dates(std::string pdf) {
  constexpr std::string_view kDate = "19700101000000";
  for (const std::string_view key : {"/CreationDate (D:", "/ModDate (D:"})
    for (auto at = pdf.find(key); at != std::string::npos; at = pdf.find(key, at + 1))
      if (at + key.size() + kDate.size() < pdf.size())
        pdf.replace(at + key.size(), kDate.size(), kDate);
  return pdf;
}

void draw(const std::string& name, const ImageFormat& kind, const fs::path& folder) {
  const std::string format = kind.format;
  const fs::path target = folder / (name + "." + format);
  TemporaryFile picture(temporary_beside(target));
  const TemporaryFile messages(picture.path().string() + ".log");
  ProcessOptions options;
  options.working_folder = folder;
  options.stdout_path = fs::absolute(messages.path());
  options.stderr_path = fs::absolute(messages.path());
  options.environment = {"SOURCE_DATE_EPOCH=0"};
  const ProcessResult result =
      run_rsvg({"rsvg-convert", "--format", format, "--zoom", kind.zoom, "--output",
                picture.path().filename().string(), "./" + name + ".svg"},
               options);
  if (!result.succeeded() || !fs::exists(picture.path()))
    throw Error(ExitCode::kInputOutput, fmt::format("rsvg-convert ended with {}: {}", result.text(),
                                                    read_text_file(messages.path())));
  if (format == "pdf") {
    const std::string drawn = read_text_file(picture.path());
    write_file_atomically(picture.path(), without_dates(drawn));
  }
  close_file(open_for_reading(picture.path()), picture.path());
  picture.rename_to(target);
}

}  // namespace

void write_figure(const Chart& chart, const std::string& name, const fs::path& folder) {
  write_file_atomically(folder / (name + ".plot.csv"), chart_csv(chart));
  write_file_atomically(folder / (name + ".svg"), svg_figure(chart));
}

void draw_figure(const std::string& name, const fs::path& folder) {
  for (const ImageFormat& kind : kPictures)
    draw(name, kind, folder);
}

}  // namespace gradsync::report
