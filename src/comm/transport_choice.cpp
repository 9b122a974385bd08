#include "comm/transport_choice.h"

#include "support/error.h"

namespace gradsync {

TransportChoice choose_transport(const std::string& requested, const DeviceChoice& device) {
  if (requested == "nccl" && !device.cuda)
    throw Error(ExitCode::kEnvironment,
                "--transport nccl moves the memory of GPUs, and the ranks "
                "compute on CPUs" +
                    (device.why.empty() ? "" : " (" + device.why + ")"),
                "give --device cuda, or leave --transport out");
  if (requested != "auto") return {requested, "asked for"};
  if (!device.cuda) return {"mpi", "tensors in host memory"};
  if (device.shared) return {"mpi", "ranks share a GPU"};
  return {"nccl", "a GPU of its own for each rank"};
}

}  // namespace gradsync
