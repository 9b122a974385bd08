// SPDX-License-Identifier: BSD-3-Clause
#include "base/error.h"
#include "options/epoch_plan.h"
#include "train/iteration.h"

#if GRADSYNC_WITH_CUDA
#include <ATen/cuda/CUDAGraph.h>
#include <cuda_runtime_api.h>
#endif

namespace gradsync {

bool StepGraph::serves(std::int64_t samples, std::int64_t passes) const {
  return why_not_.empty() && launched_ >= kStepsBeforeCapture && samples == samples_ &&
         passes == passes_;
}

void StepGraph::note(std::int64_t samples, std::int64_t passes, const TrafficBytes& traffic) {
  // A process that resumes at the last batch of an epoch sees the whole one later.
  if (samples > samples_) {
    samples_ = samples;
    passes_ = passes;
    launched_ = 0;
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

bool StepGraph::capture(const Work& work, Ledger& ledger) {
  const RankTraffic before = ledger.total();
  try {
    sums_ = record(work);
    captured_ = true;
  } catch (const std::exception& error) {
    why_not_ = error.what();
  }
  moved_ = ledger.take_back(before);
  return captured_;
}

void StepGraph::replay(Ledger& ledger) {
  launch();
  ledger.add(moved_);
}

#if GRADSYNC_WITH_CUDA

struct StepGraph::Graph {
  at::cuda::CUDAGraph recorded;
  bool recording = false;

  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void begin() {
    // Captures this thread only: autograd's and NCCL's may make calls that a capture forbids.
    recorded.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    recording = true;
  }
  void end() {
    recording = false;
    recorded.capture_end();
  }
  ~Graph() {
    if (!recording) return;
    try {
      end();
    } catch (const std::exception&) {
      cudaGetLastError();  // what the capture left
    }
  }
};

torch::Tensor StepGraph::record(const Work& work) {
  auto graph = std::make_unique<Graph>();
  graph->begin();
  torch::Tensor sums = work();
  graph->end();
  graph_ = std::move(graph);
  return sums;
}

void StepGraph::launch() {
  graph_->recorded.replay();
}

#else

struct StepGraph::Graph {};

torch::Tensor StepGraph::record(const Work&) {
  throw Error(ExitCode::kEnvironment, "this build is without CUDA");
}

void StepGraph::launch() {}

#endif

StepGraph::StepGraph() = default;
StepGraph::~StepGraph() = default;

}  // namespace gradsync
