#include "comm/mpi_program.h"

#include <exception>
#include <iostream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "support/error.h"
#include "support/version.h"

namespace gradsync {

namespace {

struct Request {
  ParsedCommandLine parsed;
  std::exception_ptr error;
};

Request read_request(const MpiProgram& program, int argc, char** argv) {
  Request request;
  try {
    request.parsed = resolve_options(program.options, argc, argv, {}, program.foreign);
    if (!request.parsed.help && !request.parsed.version) program.read(request.parsed.values);
  } catch (...) {
    request.error = std::current_exception();
  }
  return request;
}

bool answered(const MpiProgram& program, const ParsedCommandLine& parsed) {
  if (parsed.help)
    std::cout << program.help;
  else if (parsed.version)
    std::cout << version_text(program.name);
  else if (parsed.print_config)
    std::cout << config_text(program.options, parsed.values);
  else
    return false;
  return true;
}

}  // namespace

int run_mpi_program(const MpiProgram& program, int argc, char** argv) {
  const Request request = read_request(program, argc, argv);
  if (!request.error && answered(program, request.parsed)) return 0;
  const Session session(argc, argv, program.name, program.limits());
  {
    const WatchdogTimeoutExtension starts(session.watchdog(), WatchedPhase::kStartUp);
    session.together([&] {
      if (request.error) std::rethrow_exception(request.error);
      if (program.checks_launch) session.require_sound_launch();
    });
  }
  const std::string command_line = fmt::format("{}", fmt::join(argv, argv + argc, " "));
  try {
    return program.run(session, request.parsed.values, command_line);
  } catch (...) {
    session.abort(current_error());
  }
}

}  // namespace gradsync
