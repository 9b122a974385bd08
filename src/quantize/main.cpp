// gradsync-quantize: int8 post-training quantization of a trained network, step by step.
//
//   gradsync-quantize --checkpoint run.checkpoints --output int8.h5 --save int8.safetensors
//   mpirun -n 2 gradsync-quantize --checkpoint run.checkpoints --calibrator entropy

#include "comm/mpi_program.h"
#include "int8/options.h"
#include "quantize/run.h"

int main(int argc, char** argv) {
  using namespace gradsync;
  using namespace gradsync::quantize;
  QuantizeOptions options;
  const MpiProgram program{quantize_help(),
                           quantize_option_table(),
                           Foreign::kIgnore,
                           [&](const OptionValues& values) { options = quantize_options(values); },
                           watch_limits,
                           [&](const Session& session, const OptionValues& values,
                               const std::string& command_line, ProgramOutput& output) {
                             return run_quantization(session, options, values, command_line,
                                                     output);
                           }};
  return run_mpi_program(program, argc, argv);
}
