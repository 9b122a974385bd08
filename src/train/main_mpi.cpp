// gradsync-train: data-parallel training, measured.
//
//   mpirun -n 2 gradsync-train --model vgg11 --sync ddp --iterations 40 --output run.h5
//   mpirun -n 2 gradsync-train --epochs 30 --time-limit 3h --output run.h5 --resume auto
//   srun --mpi=pmix -n 8 gradsync-train --config run.cfg --output run.h5

#include "base/memory.h"
#include "comm/mpi_program.h"
#include "options/options.h"
#include "train/run.h"

int main(int argc, char** argv) {
  using namespace gradsync;
  keep_freed_memory();
  StopRequest stop;
  TrainOptions options;
  const MpiProgram program{train_help(),
                           train_option_table(),
                           Foreign::kReject,
                           [&](const OptionValues& values) { options = train_options(values); },
                           [&] { return watch_limits(options); },
                           [&](const Session& session, const OptionValues& values,
                               const std::string& command_line, ProgramOutput& output) {
                             stop.set_time_limit(options.time_limit_s);
                             return run_training(session, options, values, command_line, stop,
                                                 output);
                           }};
  return run_mpi_program(program, argc, argv);
}
