// gradsync-calibrate: what the collectives of training reach on these ranks.
//
//   mpirun -n 2 gradsync-calibrate -b 1KiB -e 64MiB -f 2
//   mpirun -n 4 gradsync-calibrate --sizes-from run.h5 --output calibration.h5
#include <exception>
#include <iostream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "calibrate/run.h"
#include "support/version.h"

namespace {

const char* const kProgram = "gradsync-calibrate";

/// What the command line asks for, or why it cannot be read: told only when all ranks are there, so
/// that the job says it once.
struct Request {
  gradsync::ParsedCommandLine parsed;
  gradsync::CalibrateOptions options;
  std::exception_ptr error;
};

Request read_request(int argc, char** argv) {
  Request request;
  try {
    request.parsed = gradsync::resolve_options(gradsync::calibrate_option_table(), argc, argv);
    if (!request.parsed.help && !request.parsed.version)
      request.options = gradsync::calibrate_options(request.parsed.values);
  } catch (...) {
    request.error = std::current_exception();
  }
  return request;
}

/// Answers --help, --version and --print-config, which need no MPI.
bool answered(const gradsync::ParsedCommandLine& parsed) {
  if (parsed.help)
    std::cout << gradsync::calibrate_help();
  else if (parsed.version)
    std::cout << gradsync::version_text(kProgram);
  else if (parsed.print_config)
    std::cout << gradsync::config_text(gradsync::calibrate_option_table(), parsed.values);
  else
    return false;
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const Request request = read_request(argc, argv);
  if (!request.error && answered(request.parsed)) return 0;
  const gradsync::Session session(argc, argv, kProgram);
  session.together([&] {
    if (request.error) std::rethrow_exception(request.error);
    session.check_launch();
  });
  const std::string command_line = fmt::format("{}", fmt::join(argv, argv + argc, " "));
  return gradsync::run_calibration(session, request.options, request.parsed.values, command_line);
}
