#include "analysis/published/rows.h"
#include "fuzz/targets.h"

namespace gradsync::fuzz {

void published(Input input) {
  report::published::parse_published(text_of(input), "input.csv");
}

}  // namespace gradsync::fuzz
