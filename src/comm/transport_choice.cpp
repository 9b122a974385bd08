#include "comm/transport_choice.h"

#include "support/error.h"

namespace gradsync {

namespace {

void require_gpus(const DeviceChoice& device) {
  if (device.cuda) return;
  throw Error(ExitCode::kEnvironment,
              "--transport nccl moves the memory of GPUs, and the ranks "
              "compute on CPUs" +
                  (device.why.empty() ? "" : " (" + device.why + ")"),
              "give --device cuda, or leave --transport out");
}

void require_host_memory(const std::string& transport, const DeviceChoice& device) {
  if (!device.cuda) return;
  throw Error(ExitCode::kEnvironment,
              "--transport " + transport + " moves host memory, and the ranks compute on GPUs",
              "give --transport nccl or mpi, or --device cpu");
}

}  // namespace

const std::vector<std::string>& transport_names() {
  static const std::vector<std::string> names = {"auto", "mpi", "nccl", "shm", "ring", "two-level"};
  return names;
}

std::string transport_help() {
  return "what moves tensors between ranks; auto: nccl where each rank has a GPU of its own, else "
         "mpi; for all-reduce also shm: memory that the ranks of one node share, ring: TCP "
         "connections of the job's own, two-level: shm on each node, rings between nodes";
}

TransportChoice choose_transport(const std::string& requested, const DeviceChoice& device,
                                 bool one_node) {
  if (requested == "nccl") require_gpus(device);
  if (requested != "auto" && requested != "nccl" && requested != "mpi")
    require_host_memory(requested, device);
  if (requested == "shm" && !one_node)
    throw Error(ExitCode::kEnvironment,
                "--transport shm is for ranks of one node, and these are on several",
                "give --transport two-level");
  if (requested != "auto") return {requested, "asked for"};
  if (!device.cuda) return {"mpi", "tensors in host memory"};
  if (device.shared) return {"mpi", "ranks share a GPU"};
  return {"nccl", "a GPU of its own for each rank"};
}

}  // namespace gradsync
