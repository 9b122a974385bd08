// gradsync-check: tests in seconds what a run needs, and prints fixes.
//
//   mpirun -n 4 gradsync-check --data data/cifar-10
//   srun --mpi=pmix -n 8 gradsync-check --ranks 8 --ranks-per-node 4 --device cuda

#include "check/cannot_start.h"
#include "comm/mpi_program.h"
#include "preflight/run.h"

int main(int argc, char** argv) {
  using namespace gradsync;
  using namespace gradsync::check;
  const Launcher launcher = find_launcher();
  CheckOptions options;
  const MpiProgram program{
      check_help(),
      check_option_table(),
      Foreign::kIgnore,
      [&](const OptionValues& values) {
        options = check_options(values);
        end_if_it_cannot_start(launcher);
      },
      [&] { return watch_limits(options); },
      [&](const Session& session, const OptionValues&, const std::string& command_line,
          ProgramOutput&) { return run_preflight(session, launcher, options, command_line); },
      false};
  return run_mpi_program(program, argc, argv);
}
