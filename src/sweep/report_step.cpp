#include "sweep/report_step.h"

#include <iostream>

#include "support/process.h"
#include "sweep/launcher.h"
#include "sweep/local_launcher.h"

namespace gradsync::sweep {

std::vector<std::string> report_command(const Job& job) {
  std::vector<std::string> command = {program_beside_us("gradsync-report").string(),
                                      job.results.string(), "--output",
                                      (job.results / "tables").string()};
  append(command, job.report_options);
  return command;
}

int print_report(const Job& job, bool quiet) {
  require_program(program_beside_us("gradsync-report"));
  std::vector<std::string> command = report_command(job);
  if (quiet) command.emplace_back("--quiet");
  const ProcessResult result = run_process(command);
  if (!result.succeeded()) std::cerr << "gradsync-report ended with " << result.text() << '\n';
  return result.succeeded() ? 0 : 1;
}

}  // namespace gradsync::sweep
