#include "fuzz/targets.h"
#include "options/options.h"
#include "serial/clean_environment.h"
#include "support/options.h"
#include "sweep/sweep_options.h"

namespace gradsync::fuzz {

/// The site file of the programs; that of the Slurm templates is a shell script's and is tried by
/// tests/soak/fuzz.py.
void site_file(Input input) {
  const CleanEnvironment environment;
  const InputFile file(text_of(input));
  setenv("GRADSYNC_SITE", file.path().c_str(), 1);
  const char* const arguments[] = {"program", nullptr};
  train_options(resolve_options(train_option_table(), 1, arguments, {}, Foreign::kReject).values);
  resolve_options(sweep::sweep_option_table(), 1, arguments, "JOB");
}

}  // namespace gradsync::fuzz
