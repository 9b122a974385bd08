#include "analysis/output/gzip.h"

#include <zlib.h>

#include <algorithm>

#include "base/error.h"

namespace gradsync::report {

namespace {

/// A compression under way; zlib's own memory goes with it.
class Deflate {
 public:
  Deflate() {
    constexpr int kGzipFormat = 16, kWindowBits = 15, kMemoryLevel = 8;
    if (deflateInit2(&stream_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipFormat + kWindowBits,
                     kMemoryLevel, Z_DEFAULT_STRATEGY) != Z_OK)
      throw Error(ExitCode::kOutOfMemory, "zlib cannot begin to compress");
  }
  ~Deflate() { deflateEnd(&stream_); }
  Deflate(const Deflate&) = delete;
  Deflate& operator=(const Deflate&) = delete;

  z_stream& stream() { return stream_; }

 private:
  z_stream stream_{};
};

}  // namespace

std::string gzipped(std::string_view data) {
  constexpr std::size_t kPiece = 1U << 16;
  Deflate deflate_state;
  z_stream& stream = deflate_state.stream();
  std::string result, piece(kPiece, '\0');
  int state = Z_OK;
  while (state == Z_OK) {
    // zlib counts in 32 bits: it is fed piece by piece.
    const std::size_t take = stream.avail_in == 0 ? std::min(data.size(), kPiece) : 0;
    if (take > 0) {
      // NOLINTNEXTLINE: zlib does not write to its input, whatever its type says
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
      stream.avail_in = static_cast<uInt>(take);
      data.remove_prefix(take);
    }
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    state = deflate(&stream, data.empty() ? Z_FINISH : Z_NO_FLUSH);
    result.append(piece, 0, piece.size() - stream.avail_out);
  }
  if (state != Z_STREAM_END) throw Error(ExitCode::kInternal, "zlib could not compress");
  return result;
}

}  // namespace gradsync::report
