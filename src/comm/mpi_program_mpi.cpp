#include <exception>
#include <iostream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/file.h"
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

void print_answer(const MpiProgram& program, const ParsedCommandLine& parsed) {
  std::cout << answer(program.help, program.options, parsed).value_or("");
}

}  // namespace

int run_mpi_program(const MpiProgram& program, int argc, char** argv) {
  prepare_standard_streams();
  const Request request = read_request(program, argc, argv);
  if (!request.error && request.parsed.question != Question::kNone)
    return run_program(program.help.name, [&] { return print_answer(program, request.parsed), 0; });
  const Session session(argc, argv, program.help.name, program.limits());
  {
    const WatchdogTimeoutExtension starts(session.watchdog(), WatchedPhase::kStartUp);
    session.together([&] {
      if (request.error) std::rethrow_exception(request.error);
      if (program.checks_launch) session.require_sound_launch();
      if (session.root()) require_writable(request.parsed.json);
    });
  }
  const std::string command_line = fmt::format("{}", fmt::join(argv, argv + argc, " "));
  ProgramOutput output(request.parsed, program.help.name);
  try {
    const int code = program.run(session, request.parsed.values, command_line, output);
    session.together([&] {
      if (session.root() && code == 0) require_written();
    });
    return code;
  } catch (...) {
    session.abort(current_error());
  }
}

}  // namespace gradsync
