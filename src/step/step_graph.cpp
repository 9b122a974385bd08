#include "step/step_graph.h"

#if GRADSYNC_WITH_CUDA
#include <ATen/cuda/CUDAGraph.h>
#include <cuda_runtime_api.h>
#endif

namespace gradsync {

namespace {

/// Launched iterations before the capture: ddp builds its buckets again after the first, cuDNN
/// tries its algorithms and NCCL connects in them.
constexpr std::int64_t kWarmup = 4;

}  // namespace

bool StepGraph::serves(std::int64_t samples, std::int64_t passes) const {
  return why_not_.empty() && launched_ >= kWarmup && samples == samples_ && passes == passes_;
}

void StepGraph::note(std::int64_t samples, std::int64_t passes, const TrafficBytes& traffic) {
  if (launched_ == 0) {
    samples_ = samples;
    passes_ = passes;
  }
  if (samples != samples_ || passes != passes_) return;
  ++launched_;
  traffic_ = traffic;
}

void StepGraph::give_up(const std::string& why) {
  if (why_not_.empty()) why_not_ = why;
  captured_ = false;
  sums_ = torch::Tensor();
  graph_.reset();
}

#if GRADSYNC_WITH_CUDA

struct StepGraph::Graph {
  at::cuda::CUDAGraph recorded;
};

// Of this thread only: autograd's thread and NCCL's may make calls that a capture forbids.
bool StepGraph::capture(const Work& work) {
  bool begun = false;
  try {
    graph_ = std::make_unique<Graph>();
    graph_->recorded.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    begun = true;
    sums_ = work();
    graph_->recorded.capture_end();
    captured_ = true;
    return true;
  } catch (const std::exception& error) {
    why_not_ = error.what();
  }
  try {
    if (begun) graph_->recorded.capture_end();
  } catch (const std::exception&) {
    cudaGetLastError();  // what the capture left
  }
  return false;
}

void StepGraph::replay() {
  graph_->recorded.replay();
}

#else

struct StepGraph::Graph {};

bool StepGraph::capture(const Work&) {
  why_not_ = "this build is without CUDA";
  return false;
}

void StepGraph::replay() {}

#endif

StepGraph::StepGraph() = default;
StepGraph::~StepGraph() = default;

}  // namespace gradsync
