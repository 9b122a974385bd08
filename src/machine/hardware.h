#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace gradsync {

/// What a host is made of, as its kernel states it; 0 and an empty text where it does not.
struct HostHardware {
  std::int32_t processors = 0;  ///< logical ones that are online
  std::int32_t sockets = 0, numa_nodes = 0;
  std::int64_t memory_bytes = 0;
  std::string caches;   ///< of the first processor: "L1d 48 KiB, L2 1 MiB, L3 32 MiB"
  std::string network;  ///< active ports with their rates: "mlx5_0 port 1 200 Gbit/s"
};

/// `root` holds proc and sys.
HostHardware host_hardware(const std::filesystem::path& root = "/");

}  // namespace gradsync
