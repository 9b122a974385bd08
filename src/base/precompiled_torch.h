// SPDX-License-Identifier: BSD-3-Clause
#ifndef GRADSYNC_PCH_TORCH_H  // the compiler warns of #pragma once in a main file
#define GRADSYNC_PCH_TORCH_H

// LibTorch's headers, compiled once (build/gch/pch/torch.h.gch) and force-included into every file
// of a folder of class TORCH. It only saves time: each file still includes what it uses,
// and builds the same without it.
// Not all of LibTorch: GCC instantiates what these headers leave pending in every file again.
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/cuda.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>

#endif
