#pragma once

namespace gradsync {

/// Call after a launch. Throws Error kEnvironment, naming the kernel and CUDA's reason, if it was
/// refused, and kOutOfMemory if memory ran out.
void require_launched(const char* kernel);

}  // namespace gradsync
