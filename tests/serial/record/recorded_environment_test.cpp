#include "record/recorded_environment.h"

#include <cstdlib>

#include <doctest/doctest.h>

using namespace gradsync;

TEST_CASE("environment: placement and tuning are recorded") {
  for (const char* name :
       {"SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_CPU_BIND", "OMPI_MCA_btl_tcp_if_include",
        "UCX_TLS", "NCCL_ALGO", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "HDF5_USE_FILE_LOCKING"})
    CHECK_MESSAGE(may_record(name), name);
}

TEST_CASE("environment: no credential is recorded, nor what nobody has looked at") {
  for (const char* name :
       {"SLURM_JWT", "SLURM_JWT_TOKEN", "SLURM_SOMETHING_NEW", "OMPI_MCA_PASSWORD",
        "OMPI_MCA_orte_precondition_transports", "OMPI_MCA_pmix_base_token", "NCCL_SECRET",
        "UCX_AUTH", "HOME", "PATH", "", "slurm_job_id", "SLURM_JOB_ID "})
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
