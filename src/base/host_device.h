#pragma once

/// Marks a function that kernels and the CPU share. nvcc compiles it for both; every other compiler
/// sees a plain function. So a kernel and its CPU reference implementation compute the same
/// numbers.
#ifdef __CUDACC__
#define GRADSYNC_HOST_DEVICE __host__ __device__
#else
#define GRADSYNC_HOST_DEVICE
#endif
