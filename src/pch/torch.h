#ifndef GRADSYNC_PCH_TORCH_H  // the compiler warns of #pragma once in a main file
#define GRADSYNC_PCH_TORCH_H

// LibTorch's headers, compiled once (build/gch/pch/torch.h.gch) and force-included into every file
// of a folder of class TORCH. It only saves time: each file still includes what it uses,
// and builds the same without it.
#include <ATen/autocast_mode.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <torch/torch.h>

#endif
