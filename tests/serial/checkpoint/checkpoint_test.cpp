// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/checkpoint_file.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_info.h"
#include "serial/expect_error.h"
#include "serial/sample_run.h"

using namespace gradsync;
using namespace gradsync::testing;

namespace {

const std::vector<TensorInfo> kTensors = {{"trainer/summary", "F64", {2}},
                                          {"mode", "I64", {3}},
                                          {"parameters/a", "F32", {2, 3}},
                                          {"parameters/b", "F32", {1}}};
constexpr std::size_t kDataBytes = 2 * 8 + 3 * 8 + 6 * 4 + 4;

std::string sample_data() {
  std::string data;
  for (std::size_t i = 0; i < kDataBytes; ++i)
    data += static_cast<char>(i + 1);
  return data;
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

void write_checkpoint(const std::filesystem::path& path, TextMap metadata = {{"run_id", "x"}}) {
  CheckpointWriter writer(path, kTensors, std::move(metadata));
  const std::string data = sample_data();
  writer.write(bytes_of(data.substr(0, 10)));
  writer.write(bytes_of(data.substr(10)));
  writer.finish();
}

/// The reason for which a checkpoint is refused, or an empty text.
std::string read_refusal(const std::filesystem::path& path) {
  try {
    const CheckpointFile file(path);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadData);
    return error.what();
  }
  return "";
}

/// A file with this JSON as its header and `data_bytes` zeros behind it.
std::string with_header(const std::string& header, std::size_t data_bytes) {
  std::string text(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(text.data(), &length, sizeof length);
  return text + header + std::string(data_bytes, '\0');
}

std::string parse_refusal(const std::string& file) {
  try {
    parse_safetensors(bytes_of(file));
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadData);
    return error.what();
  }
  return "";
}

CheckpointInfo sample_checkpoint() {
  CheckpointInfo info = describe_run(sample_info({"ddp", 2}));
  info.iteration = 12;
  info.epoch = 1;
  info.step = 4;
  info.journal_bytes = 9999;
  info.elapsed_s = 0.1;
  info.written = "2026-01-02T03:04:05Z";
  return info;
}

}  // namespace

TEST_CASE("checkpoint: what was written is read, and the layout is that of safetensors") {
  const TestFolder folder;
  write_checkpoint(folder / "c.safetensors");
  CHECK(folder.entries() == 1);
  const std::string text = read_text_file(folder / "c.safetensors");
  std::uint64_t length = 0;
  std::memcpy(&length, text.data(), sizeof length);
  CHECK(length % 8 == 0);
  const auto header = nlohmann::json::parse(text.substr(8, length));
  CHECK(header["parameters/a"]["dtype"] == "F32");
  CHECK(header["parameters/a"]["shape"] == nlohmann::json({2, 3}));
  CHECK(header["parameters/a"]["data_offsets"] == nlohmann::json({40, 64}));
  CHECK(text.substr(8 + length) == sample_data());
  const CheckpointFile file(folder / "c.safetensors");
  CHECK(file.metadata().at("run_id") == "x");
  REQUIRE(file.find("mode") != nullptr);
  const auto bytes = file.bytes(*file.find("mode"));
  CHECK(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()) ==
        sample_data().substr(16, 24));
  CHECK(file.find("nothing") == nullptr);
}

TEST_CASE("checkpoint: one changed byte anywhere, or one missing, is noticed") {
  const TestFolder folder;
  const auto path = folder / "c.safetensors";
  write_checkpoint(path);
  const std::string good = read_text_file(path);
  std::size_t accepted = 0;
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
    write_plainly(path, bad);
    accepted += read_refusal(path).empty() ? 1 : 0;
    write_plainly(path, good.substr(0, at));
    accepted += read_refusal(path).empty() ? 1 : 0;
  }
  write_plainly(path, good + " ");
  accepted += read_refusal(path).empty() ? 1 : 0;
  CHECK(accepted == 0);
  write_plainly(path, good);
  CHECK(read_refusal(path).empty());
}

TEST_CASE("checkpoint: headers that lie are refused with the reason") {
  const std::string digest = std::string(64, '0');
  const std::string meta = R"("__metadata__":{"sha256":")" + digest + R"("})";
  const auto file = [&](const std::string& tensors, std::size_t bytes) {
    return with_header("{" + meta + (tensors.empty() ? "" : "," + tensors) + "}", bytes);
  };
  const auto tensor = [](const std::string& shape, const std::string& offsets,
                         const std::string& dtype = "F32") {
    return R"("a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets +
           "}";
  };
  const auto refused = [](const std::string& bytes, const std::string& text) {
    const std::string reason = parse_refusal(bytes);
    CAPTURE(reason);
    return reason.find(text) != std::string::npos;
  };
  CHECK(parse_refusal(file(tensor("[2]", "[0,8]"), 8)).empty());
  CHECK(parse_refusal(file("", 0)).empty());
  CHECK(refused("1234567", "too few"));
  CHECK(refused(std::string(8, '\xff') + "{}", "claims"));
  CHECK(refused(with_header("[1,2]", 0), "not a JSON object"));
  CHECK(refused(with_header(std::string(100000, '['), 0), "not a JSON object"));
  CHECK(refused(with_header("{}", 0), "no __metadata__"));
  CHECK(refused(with_header(R"({"__metadata__":{"sha256":7}})", 0), "no text"));
  CHECK(refused(with_header(R"({"__metadata__":{"sha256":"00"}})", 0), "no SHA-256"));
  CHECK(refused(with_header(R"({"__metadata__":{"sha256" : ")" + digest + R"("}})", 0), "clear"));
  CHECK(refused(file(tensor("[2]", "[0,8]"), 9), "take 8 bytes"));
  CHECK(refused(file(tensor("[2]", "[0,8]"), 7), "ends at byte 8"));
  CHECK(refused(file(tensor("[2]", "[4,12]"), 12), "has bytes 4 to 12"));
  CHECK(refused(file(tensor("[2]", "[8,0]"), 8), "has bytes 8"));
  CHECK(refused(file(tensor("[3]", "[0,8]"), 8), "not 12"));
  CHECK(refused(file(tensor("[-1]", "[0,8]"), 8), "negative"));
  CHECK(refused(file(tensor("[1.5]", "[0,8]"), 8), "whole number"));
  CHECK(refused(file(tensor("[18446744073709551615]", "[0,8]"), 8), "whole number"));
  CHECK(refused(file(tensor("[4611686018427387904,4]", "[0,8]"), 8), "impossible"));
  CHECK(refused(file(tensor("[2]", "[0,8]", "F16"), 8), "'F16'"));
  CHECK(refused(file(R"("a":5)", 8), "no dtype"));
  for (const auto& [dtype, shape, offsets] : {std::array{"7", "[2]", "[0,8]"},
                                              {R"("F32")", "2", "[0,8]"},
                                              {R"("F32")", "[2]", "8"},
                                              {R"("F32")", "[2]", "[0,8,8]"}})
    CHECK(refused(file(fmt::format(R"("a":{{"dtype":{},"shape":{},"data_offsets":{}}})", dtype,
                                   shape, offsets),
                       8),
                  "described wrongly"));
}

TEST_CASE("checkpoint: 30,000 mutated files, none crashes the parser or passes as whole") {
  const TestFolder folder;
  write_checkpoint(folder / "c.safetensors");
  const std::string good = read_text_file(folder / "c.safetensors");
  const std::string digest =
      CheckpointFile(folder / "c.safetensors").metadata().at(std::string(kDigestKey));
  std::mt19937_64 random(20260102);
  std::size_t parsed = 0, accepted = 0;
  for (int i = 0; i < 30000; ++i) {
    std::string bad = good;
    const std::size_t changes = 1 + random() % 8;
    for (std::size_t c = 0; c < changes; ++c) {
      const std::size_t at = random() % bad.size();
      switch (random() % 4) {
        case 0:
          bad[at] = static_cast<char>(random());
          break;
        case 1:
          bad.erase(at, 1 + random() % 9);
          break;
        case 2:
          bad.insert(at, 1, "0123456789{}[]\",:-e"[random() % 19]);
          break;
        default:
          bad[at] = bad[random() % bad.size()];
          break;
      }
      if (bad.empty()) bad = "x";
    }
    if (bad == good) continue;
    try {
      const SafetensorsHeader header = parse_safetensors(bytes_of(bad));
      ++parsed;
      accepted += safetensors_digest(bytes_of(bad), header.digest_at) ==
                          header.metadata.at(std::string(kDigestKey))
                      ? 1
                      : 0;
    } catch (const Error& error) {
      REQUIRE(error.code() == ExitCode::kBadData);
    }
  }
  CHECK(parsed > 100);  // or the digest was never asked
  CHECK(accepted == 0);
}

TEST_CASE("checkpoint: a file that is no checkpoint of ours is refused though it is whole") {
  const TestFolder folder;
  const auto path = folder / "foreign.safetensors";
  const std::string front = safetensors_front({}, {{"format", "pt"}});
  write_plainly(path, front);
  CHECK(read_refusal(path).find("format is 'pt'") != std::string::npos);
  CHECK_THROWS_AS(CheckpointFile(folder / "missing"), Error);
}

TEST_CASE("checkpoint: a writer that does not finish leaves nothing and touches nothing") {
  const TestFolder folder;
  const auto path = folder / "c.safetensors";
  write_plainly(path, "earlier");
  {
    CheckpointWriter writer(path, kTensors, {});
    writer.write(bytes_of("abc"));
  }
  CHECK(folder.entries() == 1);
  CHECK(read_text_file(path) == "earlier");
}

TEST_CASE("checkpoint: what it says of its run comes back, and differences are named") {
  const CheckpointInfo info = sample_checkpoint();
  const CheckpointInfo read = from_metadata(to_metadata(info));
  CHECK(to_metadata(read) == to_metadata(info));
  CHECK(read.elapsed_s == info.elapsed_s);
  CHECK(read.provenance.count("env.SLURM_JOB_ID") == 0);
  CHECK_FALSE(difference(read, info));
  CheckpointInfo other = info;
  other.options["sync"] = "allreduce";
  CHECK(difference(info, other) == "sync is ddp there, allreduce here");
  other = info;
  other.ranks = 4;
  CHECK(difference(info, other) == "the number of ranks is 2 there, 4 here");
  other = info;
  other.options["output"] = "elsewhere.h5";
  CHECK_FALSE(difference(info, other));
  other.options["lr"] = "0.2";
  CHECK(difference(info, other) == "lr is absent there, 0.2 here");
  other = info;
  CheckpointInfo spelled = info;
  spelled.options["bucket-cap"] = "26214400";
  other.options["bucket-cap"] = "25MiB";
  CHECK_FALSE(difference(spelled, other));
  other.options["bucket-cap"] = "25MB";
  CHECK(difference(spelled, other) == "bucket-cap is 26214400 there, 25MB here");
  other = info;
  other.provenance["data_sha256"] = "abc";
  CHECK(difference(info, other));
  for (const auto& [name, value] : TextMap{{"iteration", "-1"}, {"ranks", "two"}, {"step", ""}}) {
    TextMap bad = to_metadata(info);
    bad[name] = value;
    CHECK_THROWS_AS(from_metadata(bad), Error);
  }
}

TEST_CASE("checkpoint: a folder lists them newest first") {
  const TestFolder folder;
  const auto path = folder / "run.checkpoints";
  CHECK(checkpoints_in(path).empty());
  make_checkpoint_folder(path);
  make_checkpoint_folder(path);
  for (const int iteration : {5, 100, 20})
    write_plainly(path / checkpoint_name(iteration), "x");
  write_plainly(path / "iteration-000000200.safetensors.tmp-abc", "x");
  write_plainly(path / "notes.txt", "x");
  write_plainly(path / "iteration-00000020x.safetensors", "x");
  const auto all = checkpoints_in(path);
  REQUIRE(all.size() == 3);
  CHECK(all[0].iteration == 100);
  CHECK(all[2].iteration == 5);
}

TEST_CASE("checkpoint: a folder that cannot be read is not an empty one") {
  const TestFolder folder;
  const auto loop = folder / "run.checkpoints";
  std::filesystem::create_directory_symlink(loop, loop);
  CHECK(contains(error_text(ExitCode::kInputOutput, [&] { checkpoints_in(loop); }), "cannot read"));
}

TEST_CASE("checkpoint: no two run files share a folder") {
  CHECK(checkpoint_folder("a/run.h5") == std::filesystem::path("a/run.checkpoints"));
  CHECK(checkpoint_folder("a/run") == std::filesystem::path("a/run.checkpoint-files"));
  CHECK(checkpoint_folder("a/run.dat") != checkpoint_folder("a/run.h5"));
}

namespace {

std::vector<std::int64_t> iterations_in(const std::filesystem::path& folder) {
  std::vector<std::int64_t> iterations;
  for (const NamedCheckpoint& one : checkpoints_in(folder))
    iterations.push_back(one.iteration);
  return iterations;
}

}  // namespace

TEST_CASE("checkpoint: a run keeps its newest, whatever else is in the folder") {
  const TestFolder folder;
  const auto& path = folder.path();
  for (const int other : {60, 40, 3})
    write_plainly(path / checkpoint_name(other), "other");
  OwnCheckpoints own(path, {{8, path / checkpoint_name(8)}, {4, path / checkpoint_name(4)}});
  using Iterations = std::vector<std::int64_t>;
  const auto write = [&](std::int64_t iteration) {
    write_plainly(path / checkpoint_name(iteration), "own");
    own.written(iteration, 2);
    return iterations_in(path);
  };
  write_plainly(path / checkpoint_name(4), "own");
  write_plainly(path / checkpoint_name(8), "own");
  write_plainly(path / "iteration-000000200.safetensors.tmp-abc", "x");
  CHECK(write(12) == Iterations{60, 40, 12, 8, 3});
  CHECK(write(16) == Iterations{60, 40, 16, 12, 3});
  CHECK(write(16) == Iterations{60, 40, 16, 12, 3});  // stopped where one was due
  CHECK_FALSE(std::filesystem::exists(path / "iteration-000000200.safetensors.tmp-abc"));
}

TEST_CASE("checkpoint: those of other runs are moved to a folder of their own, none is lost") {
  const TestFolder folder;
  const auto path = folder / "run.checkpoints";
  CHECK(set_aside_checkpoints(path, {}).checkpoints == 0);  // there is no folder
  make_checkpoint_folder(path);
  write_plainly(path / "notes.txt", "x");
  CHECK(set_aside_checkpoints(path, {}).checkpoints == 0);
  CHECK(folder.entries() == 2);
  for (const char* content : {"first", "second"}) {
    for (const int iteration : {4, 8, 60})
      write_plainly(path / checkpoint_name(iteration), content);
    const SetAside moved = set_aside_checkpoints(path, {{4, path / checkpoint_name(4)}});
    CHECK(moved.checkpoints == 2);
    CHECK(moved.folder.filename().string() == (std::string(content) == "first"
                                                   ? "run.checkpoints.earlier-1"
                                                   : "run.checkpoints.earlier-2"));
    CHECK(read_text_file(moved.folder / checkpoint_name(60)) == content);
    CHECK(iterations_in(path) == std::vector<std::int64_t>{4});
  }
  CHECK(read_text_file(folder / "run.checkpoints.earlier-1" / checkpoint_name(8)) == "first");
  CHECK(std::filesystem::exists(path / "notes.txt"));
}
