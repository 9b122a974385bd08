#include <optional>

#include "sync/flat_gradients.h"
#include "sync/sync_mode.h"

namespace gradsync {

namespace {

/// No exchange: every rank trains on its own slice alone. The compute-only baseline.
class None : public SyncMode {
 public:
  void attach(Replica& replica) override { gradients_.emplace(replica); }
  void synchronize() override {}

 private:
  std::optional<FlatGradients> gradients_;
};

}  // namespace

std::unique_ptr<SyncMode> make_none(Exchange&, const SyncSettings&) {
  return std::make_unique<None>();
}

}  // namespace gradsync
