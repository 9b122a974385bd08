#include "device/nvml.h"

#include <cmath>

#include <doctest/doctest.h>

namespace gradsync {
namespace {

const std::string kFake = "build/tests/libfake_nvml.so";

}  // namespace

TEST_CASE("what NVML says of a GPU, and what it does not") {
  std::string why;
  const auto monitor = open_nvml("GPU-fake", why, kFake);
  REQUIRE_MESSAGE(monitor, why);
  const GpuReading reading = monitor->read();
  CHECK(reading.memory_used_bytes == 700);
  CHECK(reading.sm_clock_hz == 1980e6);
  CHECK(reading.memory_clock_hz == 3201e6);
  CHECK(std::isnan(reading.power_w));
  CHECK(reading.temperature_c == 41);
  CHECK(reading.throttle_reasons == 0x25);
  CHECK(reading.memory_bytes == 1000);
  CHECK(reading.busy == doctest::Approx(0.93));
  CHECK(reading.memory_busy == doctest::Approx(0.41));
  CHECK(reading.energy_j == doctest::Approx(1.5));
}

TEST_CASE("NVML: how a GPU is connected, also where it has no NVLink") {
  std::string why;
  const auto monitor = open_nvml("GPU-fake", why, kFake), bare = open_nvml("GPU-bare", why, kFake);
  REQUIRE_MESSAGE(monitor, why);
  REQUIRE_MESSAGE(bare, why);
  const GpuLinks links = monitor->links(), none = bare->links();
  CHECK(links.pcie_generation == 5);
  CHECK(links.pcie_lanes == 16);
  CHECK(links.nvlinks == 3);
  CHECK(links.all_nvlinks == 4);
  CHECK(links.nvlink_Bps == doctest::Approx(26.562e9));
  CHECK(links_text(links) == "PCIe 5 x16, 3 NVLinks of 26.6 GB/s");
  CHECK(none.pcie_lanes == 16);
  CHECK(none.nvlinks == -1);
  CHECK(none.all_nvlinks == -1);
  CHECK(std::isnan(none.nvlink_Bps));
  CHECK(links_text(none) == "PCIe 5 x16");
  CHECK(std::isnan(bare->read().energy_j));
  CHECK(monitor->path_to("GPU-bare") == "NODE");
  CHECK(monitor->path_to("GPU-fake") == "X");
  CHECK(monitor->path_to("GPU-other") == "");
  CHECK(common_ancestor_name(50) == "SYS");
}

TEST_CASE("without NVML, or without the GPU, there is a reason instead of a monitor") {
  std::string why;
  CHECK_FALSE(open_nvml("GPU-fake", why, "libno-nvml.so.1"));
  CHECK(why == "libno-nvml.so.1 is not there");
  CHECK_FALSE(open_nvml("GPU-fake", why, "libm.so.6"));
  CHECK(why == "libm.so.6 is no NVML");
  CHECK_FALSE(open_nvml("GPU-other", why, kFake));
  CHECK(why == "NVML knows no GPU GPU-other: error 6");
}

TEST_CASE("reasons for lower clocks are named; what is no loss is not") {
  CHECK(throttle_names(0x4 | 0x40) == "power cap, thermal slowdown (hardware)");
  CHECK(throttle_names(0x1 | 0x2 | 0x100).empty());
  CHECK(throttle_names(-1).empty());
}

}  // namespace gradsync
