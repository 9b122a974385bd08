#include "comm/rank_gpu.h"

#include <nlohmann/json.hpp>

#include "comm/agreement.h"
#include "device/gpu_stack.h"

namespace gradsync {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GpuDevice, name, uuid)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DeviceFacts, rank, local_rank, host, driver, runtime, gpus)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DeviceChoice, cuda, shared, why)

namespace {

DeviceFacts facts_of(const Session& session) {
  const GpuStack stack = gpu_stack();
  return {session.rank(), session.local_rank(), session.host(),
          stack.driver,   stack.cuda_compiled,  visible_gpus()};
}

DeviceChoice agree(const Session& session, const DeviceRequest& request, const DeviceFacts& mine) {
  const auto texts = gather_texts(session, nlohmann::json(mine).dump());
  std::string chosen;
  session.together([&] {
    if (!session.root()) return;
    std::vector<DeviceFacts> all;
    for (const std::string& text : texts)
      all.push_back(nlohmann::json::parse(text).get<DeviceFacts>());
    chosen = nlohmann::json(choose_device(request, all)).dump();
  });
  auto length = static_cast<std::int64_t>(chosen.size());
  const auto watched = session.control(CollectiveKind::kBroadcast, sizeof length);
  MPI_Bcast(&length, 1, MPI_INT64_T, 0, session.world());
  chosen.resize(static_cast<std::size_t>(length));
  session.count(CollectiveKind::kBroadcast, length);
  MPI_Bcast(chosen.data(), static_cast<int>(length), MPI_CHAR, 0, session.world());
  return nlohmann::json::parse(chosen).get<DeviceChoice>();
}

}  // namespace

RankGpu agree_on_gpus(const Session& session, const DeviceRequest& request) {
  RankGpu mine;
  if (request.device == "cpu") return mine;
  const DeviceFacts facts = facts_of(session);
  mine.choice = agree(session, request, facts);
  if (!mine.choice.cuda) return mine;
  mine.index = gpu_index(facts.local_rank, facts.gpus.size());
  mine.description = facts.gpus[static_cast<std::size_t>(mine.index)];
  return mine;
}

}  // namespace gradsync
