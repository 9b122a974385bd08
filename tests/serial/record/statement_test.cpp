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

namespace {

/// A window in which every rank took `wall_s` and computed for `compute_s`.
WindowRow window(const char* kind, std::int64_t round, double wall_s,
                 double compute_s = kNotMeasured) {
  return {kind, round, 10, {{wall_s, compute_s, 0, 0}, {wall_s, compute_s, 0, 0}}};
}

}  // namespace

TEST_CASE("counterfactual: gain, OSU form, contention and cost by hand") {
  // Compute 60 ms, communication 40 ms, serial 100 ms, overlapped 72 ms with compute of 64 ms.
  const std::vector<WindowRow> windows = {
      window("compute-only", 0, 0.060, 0.060), window("communication-only", 0, 0.040),
      window("serial", 0, 0.100, 0.060), window("overlapped", 0, 0.072, 0.064),
      window("overlapped-unmeasured", 0, 0.070)};
  const Counterfactual result = counterfactual(windows);
  CHECK(result.overlap_gain() == doctest::Approx(0.7));        // 28 of 40
  CHECK(result.osu_overlap_percent() == doctest::Approx(70));  // 1 − 12/40
  CHECK(result.contention_s() == doctest::Approx(0.004));
  CHECK(result.measuring_percent() == doctest::Approx(100 * 2.0 / 70));
  CHECK(result.rounds == 1);
  CHECK(result.iterations == 10);
}

TEST_CASE("counterfactual: the median over rounds of the mean over ranks") {
  std::vector<WindowRow> windows = {window("serial", 0, 1), window("serial", 1, 9),
                                    window("serial", 2, 2)};
  windows[2].ranks = {{1, 0, 0, 0}, {4, 0, 0, 0}};  // mean 2.5
  CHECK(counterfactual(windows).serial_s == doctest::Approx(2.5));
  CHECK(counterfactual(windows).rounds == 3);
  windows[2].ranks[0].iteration_s = kNotMeasured;  // a rank that did not measure is left out
  CHECK(counterfactual(windows).serial_s == doctest::Approx(4));
}

TEST_CASE("counterfactual: a mode without overlap has no gain and no contention") {
  const std::vector<WindowRow> windows = {
      window("compute-only", 0, 0.060, 0.060), window("communication-only", 0, 0.040),
      window("overlapped", 0, 0.110, 0.061), window("overlapped-unmeasured", 0, 0.110)};
  const Counterfactual result = counterfactual(windows);
  CHECK(std::isnan(result.overlap_gain()));
  CHECK(std::isnan(result.contention_s()));
  CHECK(result.osu_overlap_percent() == 0);  // slower than one after the other
  CHECK(result.measuring_percent() == 0);
}

TEST_CASE("counterfactual: without windows everything is n/a") {
  const Counterfactual none = counterfactual({});
  CHECK(std::isnan(none.overlap_gain()));
  CHECK(std::isnan(none.osu_overlap_percent()));
  CHECK(std::isnan(none.measuring_percent()));
  CHECK(none.rounds == 0);
  // One rank: nothing is communicated.
  const Counterfactual alone =
      counterfactual({window("compute-only", 0, 0.06, 0.06), window("overlapped", 0, 0.06, 0.06)});
  CHECK(std::isnan(alone.osu_overlap_percent()));
}
