#include "train/progress.h"

#include <unistd.h>

#include <cstdio>

#include <fmt/format.h>

#include "support/parse.h"

namespace gradsync {

namespace {
constexpr double kRedraw_s = 0.2;
}

ProgressLine::ProgressLine(bool shown, std::int64_t iterations_in_all)
    : shown_(shown && isatty(STDERR_FILENO) != 0), total_(iterations_in_all) {}

void ProgressLine::update(std::int64_t epoch, std::int64_t iterations_done, double loss,
                          double images_per_second) {
  if (!shown_ || since_drawn_.elapsed_s() < kRedraw_s) return;
  since_drawn_.restart_s();
  const double left_s = since_start_.elapsed_s() / static_cast<double>(iterations_done - before_) *
                        static_cast<double>(total_ - iterations_done);
  const std::string line =
      fmt::format("epoch {} iteration {}/{} loss {:.3f} {:.0f} images/s, {} left", epoch + 1,
                  iterations_done, total_, loss, images_per_second, format_duration(left_s));
  std::fprintf(stderr, "\r\033[K%s", line.c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void ProgressLine::clear() {
  if (drawn_) std::fprintf(stderr, "\r\033[K");
  drawn_ = false;
}

}  // namespace gradsync
