#pragma once

namespace gradsync {

/// Whether this host has an InfiniBand adapter or one that looks like it.
bool has_infiniband();

/// Whether this host has an adapter that MPI drives past the kernel's TCP: InfiniBand, RoCE,
/// Omni-Path or EFA (all in /sys/class/infiniband), or Slingshot (/sys/class/cxi).
bool has_fast_network();

}  // namespace gradsync
