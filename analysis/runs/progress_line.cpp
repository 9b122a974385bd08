#include "analysis/runs/progress_line.h"

#include <unistd.h>

#include <iostream>

namespace gradsync::report {

ProgressLine::ProgressLine() : shown_(isatty(STDERR_FILENO) != 0) {}

void ProgressLine::say(const std::string& text) {
  if (!shown_) return;
  std::cerr << "\r\033[K" << text << std::flush;
  there_ = true;
}

void ProgressLine::clear() {
  if (there_) std::cerr << "\r\033[K" << std::flush;
  there_ = false;
}

}  // namespace gradsync::report
