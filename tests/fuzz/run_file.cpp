#include "fuzz/targets.h"
#include "record/reader.h"

namespace gradsync::fuzz {

void run_file(Input input) {
  const InputFile file(text_of(input));
  const auto run = open_run(file.path());
  read_all(*run);
}

}  // namespace gradsync::fuzz
