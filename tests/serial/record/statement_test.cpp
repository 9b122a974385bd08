// SPDX-License-Identifier: BSD-3-Clause

#include <cmath>
#include <cstdlib>

#include <doctest/doctest.h>

#include "record/recorded_environment.h"
#include "record/row_figures.h"
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

TEST_CASE("environment: placement and tuning are recorded") {
  for (const char* name :
       {"SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_CPU_BIND", "OMPI_MCA_btl_tcp_if_include",
        "PRTE_MCA_rmaps_default_mapping_policy", "I_MPI_PIN", "MPICH_OFI_NIC_POLICY", "PMI_SIZE",
        "UCX_TLS", "NCCL_ALGO", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "HDF5_USE_FILE_LOCKING"})
    CHECK_MESSAGE(may_record(name), name);
}

TEST_CASE("environment: no credential is recorded, nor what nobody has looked at") {
  for (const char* name :
       {"SLURM_JWT", "SLURM_JWT_TOKEN", "SLURM_SOMETHING_NEW", "OMPI_MCA_PASSWORD",
        "OMPI_MCA_orte_precondition_transports", "OMPI_MCA_pmix_base_token", "NCCL_SECRET",
        "UCX_AUTH", "PMI_SHARED_SECRET", "I_MPI_HYDRA_UUID", "HOME", "PATH", "", "slurm_job_id",
        "SLURM_JOB_ID "})
    CHECK_MESSAGE(!may_record(name), name);
}

TEST_CASE("environment: what is set stands there with its value") {
  ::setenv("SLURM_JOB_NAME", "a=b", 1);
  ::setenv("SLURM_JWT", "eyJ", 1);
  bool found = false;
  for (const NamedText& entry : recorded_environment()) {
    found |= entry.name == "env.SLURM_JOB_NAME" && entry.value == "a=b";
    CHECK(entry.value != "eyJ");
  }
  CHECK(found);
  ::unsetenv("SLURM_JOB_NAME");
  ::unsetenv("SLURM_JWT");
}

TEST_CASE("windows: the median over the rounds of the mean over the ranks") {
  const auto window = [](std::int64_t round, const std::vector<double>& ranks_s) {
    WindowRow row{"serial", round, 10, {}};
    for (const double time_s : ranks_s)
      row.ranks.push_back({time_s});
    return row;
  };
  std::vector<WindowRow> windows = {window(0, {1, 1}), window(1, {9, 9}), window(2, {1, 4})};
  const auto serial_s = [&] { return window_figure(windows, "serial", &RankWindow::iteration_s); };
  CHECK(serial_s() == doctest::Approx(2.5));
  windows[2].ranks[0].iteration_s = kNotMeasured;  // a rank that did not measure is left out
  CHECK(serial_s() == doctest::Approx(4));
  CHECK(std::isnan(window_figure(windows, "overlapped", &RankWindow::iteration_s)));
}
