#include "hang/deadline_guard.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include <doctest/doctest.h>

using namespace gradsync;

TEST_CASE("deadline guard: SIGTERM ends a rank whose turn to report has not come") {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::signal(SIGTERM, SIG_IGN);  // as a run that takes it for a request to stop lives on
    const DeadlineGuard guard("test", Error(ExitCode::kHang, "late"), 0.2, 8);
    ::sleep(20);
    ::_exit(0);
  }
  ::usleep(700'000);
  ::kill(child, SIGTERM);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK((WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status)) == SIGTERM);
}
