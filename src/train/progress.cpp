#include "train/progress.h"

#include <unistd.h>

#include <iostream>

#include <fmt/format.h>

#include "base/parse.h"

namespace gradsync {

namespace {
constexpr double kRedraw_s = 0.2, kLog_s = 60;
}

ProgressLog::ProgressLog(bool shown, std::int64_t log_every, std::int64_t iterations_in_all)
    : shown_(shown),
      on_terminal_(isatty(STDERR_FILENO) != 0),
      log_every_(log_every),
      total_(iterations_in_all) {}

std::string ProgressLog::line(std::int64_t epoch, std::int64_t iterations_done, double loss,
                              double images_per_second) const {
  const double left_s = since_start_.elapsed_s() / static_cast<double>(iterations_done - before_) *
                        static_cast<double>(total_ - iterations_done);
  return fmt::format("epoch {} iteration {} of {} loss {:.4f}, {:.0f} images/s, {} left", epoch + 1,
                     iterations_done, total_, loss, images_per_second, format_duration(left_s));
}

void ProgressLog::update(std::int64_t epoch, std::int64_t iterations_done, double loss,
                         double images_per_second) {
  if (!shown_) return;
  if (log_every_ > 0 && iterations_done % log_every_ == 0) {
    clear();
    std::cout << fmt::format("epoch {} iteration {} loss {:.4f}\n", epoch + 1, iterations_done,
                             loss)
              << std::flush;
    return;
  }
  if (since_drawn_.elapsed_s() < (on_terminal_ ? kRedraw_s : kLog_s)) return;
  since_drawn_.restart_s();
  const std::string text = line(epoch, iterations_done, loss, images_per_second);
  if (on_terminal_)
    std::cerr << "\r\033[K" << text << std::flush;
  else
    std::cout << text << std::endl;
  drawn_ = on_terminal_;
}

void ProgressLog::clear() {
  if (drawn_) std::cerr << "\r\033[K" << std::flush;
  drawn_ = false;
}

}  // namespace gradsync
