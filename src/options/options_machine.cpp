#include "options/option_groups.h"
#include "options/transport_choice.h"

namespace gradsync {

TrainOptionTable machine_options() {
  using enum OptionRole;
  using Value = BoundValue<TrainOptions>;
  using O = TrainOptions;
  const auto settled = [](TrainOption option, const std::string& open,
                          const std::string& formerly) {
    option.open = open;
    option.formerly = formerly;
    return option;
  };
  return {
      settled({kMachine, "device", Value::choice(&O::device, {kAuto, "cpu", "cuda"}),
               "what ranks compute on; auto: one GPU per rank where there are GPUs"},
              kAuto, "cpu"),
      {kMachine, "allow-shared-gpu", Value::on_off(&O::allow_shared_gpu),
       "for tests: several ranks on one GPU"},
      settled({kBetweenRanks, "transport", Value::choice(&O::transport, transport_names()),
               transport_help()},
              kAuto, "mpi"),
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
      settled({kMachine, "threads", Value::integer(&O::threads, 0, 1024),
               "threads per rank; 0: the cores available to the rank, over the ranks that share "
               "them"},
              "0", ""),
  };
}

}  // namespace gradsync
