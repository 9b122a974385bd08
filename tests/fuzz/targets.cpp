#include "fuzz/targets.h"

#include <sys/mman.h>

#include <array>

#include "support/error.h"

namespace gradsync::fuzz {

namespace {

constexpr std::array kTargets = {Target{"checkpoint", checkpoint},
                                 Target{"cifar10", cifar10},
                                 Target{"int8_file", int8_file},
                                 Target{"job_file", job_file},
                                 Target{"journal", journal},
                                 Target{"options", options},
                                 Target{"published", published},
                                 Target{"ring_handshake", ring_handshake},
                                 Target{"run_file", run_file},
                                 Target{"site_file", site_file},
                                 Target{"sweep_records", sweep_records}};

}  // namespace

std::span<const Target> targets() {
  return kTargets;
}

void run(const Target& target, Input input) {
  try {
    target.run(input);
  } catch (const Error&) {
    // Refused, with a message.
  }
}

InputFile::InputFile(std::string_view content) : file_(::memfd_create("input", MFD_CLOEXEC)) {
  write_all(file_.get(), std::as_bytes(std::span(content)), "input");
}

std::filesystem::path InputFile::path() const {
  return "/proc/self/fd/" + std::to_string(file_.get());
}

}  // namespace gradsync::fuzz
