#include "base/error.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>

#include "base/memory.h"

namespace gradsync {

std::string describe(const std::string& program, const Error& error) {
  std::string text = program + ": " + error.what();
  if (!error.fix().empty()) text += "\n  fix: " + error.fix();
  return text;
}

Error current_error() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error(ExitCode::kOutOfMemory, "out of memory", "lower --batch-per-rank");
  } catch (const std::exception& error) {
    if (tells_out_of_memory(error.what()))
      return Error(ExitCode::kOutOfMemory, error.what(), "lower --batch-per-rank");
    return Error(ExitCode::kInternal, std::string("unexpected: ") + error.what());
  } catch (...) {
    return Error(ExitCode::kInternal, "unexpected exception of unknown type");
  }
}

void print_error(const std::string& program, const Error& error) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s\n", describe(program, error).c_str());
}

void print_warning(const std::string& program, const std::string& text) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s: warning: %s\n", program.c_str(), text.c_str());
}

std::string errno_text() {
  return std::strerror(errno);
}

}  // namespace gradsync
