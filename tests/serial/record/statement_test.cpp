#include "record/statement.h"

#include <doctest/doctest.h>

#include "serial/expect_error.h"

using namespace gradsync;

namespace {

/// What rank 0 says of ranks on hosts n0, n1 …; empty where they agree.
std::string said_of(const std::vector<std::vector<NamedText>>& stated) {
  std::vector<std::string> statements;
  for (const auto& one : stated)
    statements.push_back(packed_statement("n" + std::to_string(statements.size()), one));
  const auto error = disagreement(statements);
  if (!error) return "";
  CHECK(error->code() == ExitCode::kRanksDisagree);
  return error->what();
}

}  // namespace

TEST_CASE("ranks that state the same agree, on whatever hosts") {
  CHECK(said_of({{{"lr", "0.1"}}, {{"lr", "0.1"}}, {{"lr", "0.1"}}}) == "");
  CHECK(said_of({{}, {}}) == "");
}

TEST_CASE("the first rank that states something else is named with both values") {
  CHECK(said_of({{{"lr", "0.1"}, {"seed", "1"}},
                 {{"lr", "0.1"}, {"seed", "1"}},
                 {{"lr", "0.1"}, {"seed", "2"}}}) ==
        "ranks disagree: rank 0 (n0) has seed = 1, rank 2 (n2) has seed = 2");
}

TEST_CASE("what one rank states beyond the others is a difference too") {
  const std::vector<NamedText> shorter = {{"lr", "0.1"}}, longer = {{"lr", "0.1"}, {"seed", "1"}};
  CHECK(said_of({shorter, longer}) ==
        "ranks disagree: rank 0 (n0) has nothing more, rank 1 (n1) has seed = 1");
  CHECK(said_of({longer, shorter}) ==
        "ranks disagree: rank 0 (n0) has seed = 1, rank 1 (n1) has nothing more");
}

TEST_CASE("bytes that are not UTF-8 are stated, not thrown at the caller") {
  CHECK(said_of({{{"env", "\xff"}}, {{"env", "\xff"}}}) == "");
  CHECK(contains(said_of({{{"env", "a\xff"}}, {{"env", "b\xff"}}}), "has env = a"));
}
