#include "options/option_groups.h"
#include "options/transport_choice.h"

namespace gradsync {

TrainOptionTable machine_options() {
  using enum OptionRole;
  using Value = BoundValue<TrainOptions>;
  using O = TrainOptions;
  return {
      formerly("cpu", left_open(kAuto, {kMachine, "device",
                                        Value::choice(&O::device, {kAuto, "cpu", "cuda"}),
                                        "what ranks compute on; auto: one GPU per rank where there "
                                        "are GPUs"})),
      {kMachine, "allow-shared-gpu", Value::on_off(&O::allow_shared_gpu),
       "for tests: several ranks on one GPU"},
      formerly("mpi", left_open(kAuto, {kBetweenRanks, "transport",
                                        Value::choice(&O::transport, transport_names()),
                                        transport_help()})),
      {kStep, "graph", Value::on_off(&O::graph),
       "on a GPU: capture the iteration as a CUDA graph and replay it; the log says if this is "
       "impossible, and why"},
      {kStep, "precision", Value::choice(&O::precision, {"fp32", "bf16", "fp16", kAuto}),
       "compute dtype (autocast); auto: the faster of fp32 and bf16 here; fp16 scales the loss and "
       "skips iterations that overflow"},
      {kStep, "tf32", Value::either("off", "on", &O::tf32),
       "on a GPU: TF32 in products and convolutions of fp32"},
      {kStep, "layout", Value::choice(&O::layout, {"nchw", "nhwc", kAuto}),
       "memory layout of the images; auto: the faster of both here"},
      left_open("0", {kMachine, "threads", Value::integer(&O::threads, 0, 1024),
                      "threads per rank; 0: the cores available to the rank, over the ranks that "
                      "share them"}),
  };
}

}  // namespace gradsync
