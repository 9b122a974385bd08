#pragma once

#include <string>

namespace gradsync::report {

/// One line of progress on standard error, overwritten by the next and erased at the end. Nothing
/// where standard error is no terminal, so logs and pipes stay clean.
class ProgressLine {
 public:
  ProgressLine();
  explicit ProgressLine(bool shown) : shown_(shown) {}
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void say(const std::string& text);
  /// Before anything else is written to the terminal.
  void clear();

 private:
  bool shown_;
  bool there_ = false;
};

}  // namespace gradsync::report
