// gradsync-calibrate: what the collectives of training reach on these ranks.
//
//   mpirun -n 2 gradsync-calibrate -b 1KiB -e 64MiB -f 2
//   mpirun -n 4 gradsync-calibrate --sizes-from run.h5 --output calibration.h5

#include "calibrate/run.h"
#include "comm/mpi_program.h"
#include "support/memory.h"

int main(int argc, char** argv) {
  using namespace gradsync;
  using namespace gradsync::calibrate;
  keep_freed_memory();
  CalibrateOptions options;
  const MpiProgram program{
      calibrate_help(),
      calibrate_option_table(),
      Foreign::kIgnore,
      [&](const OptionValues& values) { options = calibrate_options(values); },
      [&] { return watch_limits(options); },
      [&](const Session& session, const OptionValues& values, const std::string& command_line,
          ProgramOutput&) { return run_calibration(session, options, values, command_line); }};
  return run_mpi_program(program, argc, argv);
}
