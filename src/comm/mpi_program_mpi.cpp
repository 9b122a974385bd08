#include <exception>
#include <iostream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "comm/mpi_program.h"

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
    if (request.parsed.has_values()) program.read(request.parsed.values);
  } catch (...) {
    request.error = std::current_exception();
  }
  return request;
}

bool answered(const MpiProgram& program, const ParsedCommandLine& parsed) {
  const auto text = answer(program.help, program.options, parsed);
  if (text) std::cout << *text;
  return text.has_value();
}

}  // namespace

int run_mpi_program(const MpiProgram& program, int argc, char** argv) {
  const Request request = read_request(program, argc, argv);
  if (!request.error && answered(program, request.parsed)) return 0;
  const Session session(argc, argv, program.help.name, program.limits());
  {
    const WatchdogTimeoutExtension starts(session.watchdog(), WatchedPhase::kStartUp);
    session.together([&] {
      if (request.error) std::rethrow_exception(request.error);
      if (program.checks_launch) session.require_sound_launch();
    });
  }
  const std::string command_line = fmt::format("{}", fmt::join(argv, argv + argc, " "));
  ProgramOutput output(request.parsed, program.help.name);
  try {
    return program.run(session, request.parsed.values, command_line, output);
  } catch (...) {
    session.abort(current_error());
  }
}

}  // namespace gradsync
