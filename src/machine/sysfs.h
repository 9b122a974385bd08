#pragma once

#include <filesystem>
#include <string>
#include <vector>

/// Files of one value, as the kernel gives them in /sys and /proc.
namespace gradsync {

/// The first line; empty where there is no such file.
std::string line_of(const std::filesystem::path& file);

/// The number that the first line begins with; 0 without one.
double number_in(const std::filesystem::path& file);

/// The same, NaN without one: counters begin at 0.
double counter_in(const std::filesystem::path& file);

/// In order of their names; empty where there is no such folder.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder);

/// What an interface or adapter of a host says it can do.
struct NominalRate {
  std::string name;     ///< "mlx5_0 port 1", "eth0"
  double rate_Bps = 0;  ///< each way
};

/// The active ports that state a rate: of InfiniBand adapters (`class/infiniband` of `sysfs`), then
/// the network interfaces that are up and are hardware (`class/net`).
std::vector<NominalRate> nominal_rates(const std::filesystem::path& sysfs);

/// The fastest of them, an adapter before an interface. Without a name where there is none.
NominalRate nominal_rate(const std::filesystem::path& sysfs);

/// Whether this host has an InfiniBand adapter or one that looks like it.
bool has_infiniband();

/// Whether this host has an adapter that MPI drives past the kernel's TCP: InfiniBand, RoCE,
/// Omni-Path or EFA (all in /sys/class/infiniband), or Slingshot (/sys/class/cxi).
bool has_fast_network();

}  // namespace gradsync
