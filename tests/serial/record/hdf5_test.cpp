// SPDX-License-Identifier: BSD-3-Clause
#include "record/hdf5.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <functional>
#include <iostream>

#include <doctest/doctest.h>
#include <hdf5.h>
#include <hdf5_hl.h>

#include "base/error.h"
#include "base/file.h"
#include "record/journal.h"
#include "record/reader.h"
#include "serial/expect_error.h"
#include "serial/sample_run.h"

using namespace gradsync;
using namespace gradsync::testing;

namespace {

/// A sample file opened for changing, closed when it goes.
class Edited {
 public:
  explicit Edited(const std::filesystem::path& path) : file_(open(path), H5Fclose) {}
  hid_t id() const { return file_.id(); }

  void remove(const char* path) { REQUIRE(H5Ldelete(id(), path, H5P_DEFAULT) >= 0); }
  void set(const char* attribute, const std::string& text) {
    REQUIRE(H5Adelete(id(), attribute) >= 0);
    REQUIRE(H5LTset_attribute_string(id(), "/", attribute, text.c_str()) >= 0);
  }
  void set(const char* attribute, long number) {
    REQUIRE(H5Adelete(id(), attribute) >= 0);
    const std::int64_t value = number;
    const H5Object space(H5Screate(H5S_SCALAR), H5Sclose);
    const H5Object made(
        H5Acreate2(id(), attribute, H5T_STD_I64LE, space.id(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
    REQUIRE(H5Awrite(made.id(), H5T_NATIVE_INT64, &value) >= 0);
  }
  /// A new data set of this shape without any values in it.
  void make(const char* path, std::vector<hsize_t> shape, hid_t type, bool chunked = false,
            bool deflated = true) {
    const H5Object space(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr),
                         H5Sclose);
    const H5Object list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    if (chunked) {
      REQUIRE(H5Pset_chunk(list.id(), static_cast<int>(shape.size()), shape.data()) >= 0);
      if (deflated) REQUIRE(H5Pset_deflate(list.id(), 1) >= 0);
    }
    const H5Object made(
        H5Dcreate2(id(), path, type, space.id(), H5P_DEFAULT, list.id(), H5P_DEFAULT), H5Dclose);
    REQUIRE(made);
  }

 private:
  static hid_t open(const std::filesystem::path& path) {
    prepare_hdf5();
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    REQUIRE(file >= 0);
    return file;
  }
  H5Object file_;
};

/// The message of opening and reading all of a sample that `edit` has changed.
std::string message_after(const std::function<void(Edited&)>& edit) {
  const TestFolder folder;
  write_sample(folder / "run.h5", {});
  {
    Edited file(folder / "run.h5");
    edit(file);
  }
  try {
    const auto run = open_run(folder / "run.h5");
    run->rows(0, run->iterations());
    run->time(Phase::kIteration);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadData);
    return error.what();
  }
  return "no error";
}

std::string read_attribute(hid_t file, const char* object, const char* name) {
  const H5Object attribute(H5Aopen_by_name(file, object, name, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  REQUIRE(attribute);
  const H5Object type(H5Aget_type(attribute.id()), H5Tclose);
  CHECK(H5Tget_cset(type.id()) == H5T_CSET_UTF8);
  CHECK(H5Tis_variable_str(type.id()) == 0);
  std::string text(H5Tget_size(type.id()), '\0');
  REQUIRE(H5Aread(attribute.id(), type.id(), text.data()) >= 0);
  return text;
}

}  // namespace

TEST_CASE("hdf5: every data set has units, a long name, scales, and no filter") {
  const TestFolder folder;
  {
    Recorder recorder(folder / "run.h5", sample_info({}));
    record_sample(recorder, {});
    record_measurements(recorder, 2);
    recorder.finish(RunStatus::kComplete);
  }
  const Edited file(folder / "run.h5");
  std::vector<std::string> paths;
  const auto collect = [](hid_t, const char* name, const H5O_info_t* info, void* list) -> herr_t {
    if (info->type == H5O_TYPE_DATASET)
      static_cast<std::vector<std::string>*>(list)->push_back(name);
    return 0;
  };
  REQUIRE(H5Ovisit(file.id(), H5_INDEX_NAME, H5_ITER_NATIVE, collect, &paths) >= 0);
  CHECK(paths.size() > 80);
  for (const std::string& path : paths) {
    INFO(path);
    CHECK_FALSE(read_attribute(file.id(), path.c_str(), "units").empty());
    CHECK_FALSE(read_attribute(file.id(), path.c_str(), "long_name").empty());
    const H5Object dataset(H5Dopen2(file.id(), path.c_str(), H5P_DEFAULT), H5Dclose);
    const H5Object list(H5Dget_create_plist(dataset.id()), H5Pclose);
    CHECK(H5Pget_nfilters(list.id()) == 0);
    CHECK(H5Pget_layout(list.id()) == H5D_CONTIGUOUS);
    const H5Object space(H5Dget_space(dataset.id()), H5Sclose);
    if (H5DSis_scale(dataset.id()) > 0) continue;
    for (int axis = 0; axis < H5Sget_simple_extent_ndims(space.id()); ++axis)
      CHECK(H5DSget_num_scales(dataset.id(), static_cast<unsigned>(axis)) == 1);
  }
  CHECK(read_attribute(file.id(), "/", "schema") == "gradsync-run/1");
  CHECK(read_attribute(file.id(), "/", "command_line").ends_with("Zürich"));
  CHECK(read_attribute(file.id(), "/config/model", "source") == "job file");
  CHECK(read_attribute(file.id(), "/time/iteration", "units") == "s");
}

TEST_CASE("hdf5: texts as long as command lines get") {
  const TestFolder folder;
  RunInfo info = sample_info({});
  info.command_line = std::string(60000, 'x');
  info.config[0].value = std::string(200000, 'y');
  Recorder recorder(folder / "run.h5", info);
  recorder.finish(RunStatus::kComplete);
  CHECK(open_run(folder / "run.h5")->info().command_line == info.command_line);
}

TEST_CASE("hdf5: a newer or foreign schema") {
  CHECK(contains(message_after([](Edited& file) { file.set("schema", "gradsync-run/4"); }),
                 "has the schema gradsync-run/4, this program reads gradsync-run/1 to "
                 "gradsync-run/3"));
  CHECK(contains(message_after([](Edited& file) { file.set("schema", "other/1"); }),
                 "not a run file"));
  CHECK(contains(message_after([](Edited& file) { file.set("schema", "gradsync-run/01"); }),
                 "gradsync-run/01"));
  CHECK(contains(message_after([](Edited& file) { H5Adelete(file.id(), "schema"); }),
                 "not a run file"));
}

TEST_CASE("hdf5: what is missing is named") {
  for (const char* path :
       {"time/iteration", "time", "loss", "bucket/ready", "topology/host", "iteration/lr",
        "epoch/test_accuracy", "verification", "config", "traffic/gradients"}) {
    const std::string message = message_after([&](Edited& file) { file.remove(path); });
    INFO(message);
    CHECK(message.find(path) != std::string::npos);
    CHECK(message.find("is missing") != std::string::npos);
  }
  CHECK(contains(message_after([](Edited& file) { H5Adelete(file.id(), "valid_rows"); }),
                 "/@valid_rows"));
}

TEST_CASE("hdf5: times of rows that are not there, and times that are missing") {
  const TestFolder folder;
  write_sample(folder / "run.h5", {});
  CHECK_THROWS_AS(open_run(folder / "run.h5")->time(Phase::kCompute, 11, 2), Error);
  CHECK_THROWS_AS(open_run(folder / "run.h5")->begin(13, 0), Error);
  Edited(folder / "run.h5").remove("time/forward");
  CHECK_THROWS_AS(open_run(folder / "run.h5")->time(Phase::kForward, 0, 1), Error);
}

TEST_CASE("hdf5: another shape, type or place of storage is refused") {
  const auto replaced = [](std::vector<hsize_t> shape, hid_t type, bool chunked = false,
                           bool deflated = true) {
    return message_after([&](Edited& file) {
      file.remove("time/iteration");
      file.make("time/iteration", shape, type, chunked, deflated);
    });
  };
  CHECK(contains(replaced({12, 3}, H5T_IEEE_F64LE), "has the shape (12, 3), expected (12, 2)"));
  CHECK(contains(replaced({12}, H5T_IEEE_F64LE), "has the shape (12)"));
  CHECK(contains(replaced({12, 2}, H5T_IEEE_F32LE), "another type"));
  CHECK(contains(replaced({12, 2}, H5T_IEEE_F64LE), "was never written"));
  CHECK(contains(replaced({12, 2}, H5T_IEEE_F64LE, true), "uncompressed"));
  CHECK(contains(replaced({12, 2}, H5T_IEEE_F64LE, true, false), "contiguously"));
  CHECK(contains(message_after([](Edited& file) {
                   file.remove("loss");
                   H5Lcreate_external("/etc/passwd", "/loss", file.id(), "loss", H5P_DEFAULT,
                                      H5P_DEFAULT);
                 }),
                 "link to another place"));
}

TEST_CASE("hdf5: buckets of other rows, or more than a network has parameters, are refused") {
  for (const std::vector<hsize_t>& shape : {std::vector<hsize_t>{11, 2}, {12, 1 << 30}})
    CHECK(contains(message_after([&](Edited& file) {
                     file.remove("bucket/bytes");
                     file.make("bucket/bytes", shape, H5T_STD_I64LE);
                   }),
                   "/bucket/bytes"));
}

TEST_CASE("hdf5: what lies behind a link to another file is not looked for") {
  const TestFolder folder;
  const auto path = folder / "run.h5";
  write_sample(path, {});
  {
    Edited file(path);
    H5Lcreate_external("/nowhere", "/", file.id(), "elsewhere", H5P_DEFAULT, H5P_DEFAULT);
  }
  const Hdf5Input file(path);
  CHECK(file.has("elsewhere/x"));
  CHECK(contains(error_text(ExitCode::kBadData, [&] { file.text("elsewhere/x"); }),
                 "link to another place"));
}

TEST_CASE("hdf5: many names of one text are refused before memory is taken") {
  CHECK(contains(message_after([](Edited& file) {
                   const std::string text(1 << 20, 'x');
                   REQUIRE(H5LTmake_dataset_string(file.id(), "config/a", text.c_str()) >= 0);
                   for (const char* name : {"config/b", "config/c", "config/d"})
                     REQUIRE(H5Lcreate_hard(file.id(), "config/a", file.id(), name, H5P_DEFAULT,
                                            H5P_DEFAULT) >= 0);
                 }),
                 "larger than the file"));
}

TEST_CASE("hdf5: sizes beyond the file are refused before memory is taken") {
  CHECK(contains(message_after([](Edited& file) {
                   file.remove("topology/rank");
                   file.make("topology/rank", {hsize_t{1} << 40}, H5T_STD_I32LE);
                 }),
                 "larger than the file"));
  CHECK(contains(message_after([](Edited& file) { file.set("valid_rows", 13L); }), "valid_rows"));
  CHECK(contains(message_after([](Edited& file) { file.set("valid_rows", -1L); }), "valid_rows"));
  CHECK(contains(message_after([](Edited& file) { file.set("valid_rows", "7"); }),
                 "is not one whole number"));
}

TEST_CASE("hdf5: fewer valid rows than stored ones are what is read") {
  const TestFolder folder;
  write_sample(folder / "run.h5", {});
  {
    Edited file(folder / "run.h5");
    file.set("valid_rows", 7L);
  }
  const auto run = open_run(folder / "run.h5");
  CHECK(run->iterations() == 7);
  CHECK(run->time(Phase::kData).rows == 7);
  CHECK(same(run->rows(6, 1)[0], sample_row({}, 6)));
}

TEST_CASE("hdf5: numbers and texts that were changed behind the library's back are refused") {
  const TestFolder folder;
  write_sample(folder / "run.h5", {});
  std::ifstream file(folder / "run.h5", std::ios::binary);
  const std::string sound((std::istreambuf_iterator<char>(file)), {});
  const auto message_with = [&](const std::string& from, const std::string& to) {
    std::string text = sound;
    REQUIRE(text.find(from) != std::string::npos);
    text.replace(text.find(from), from.size(), to);
    write_plainly(folder / "changed.h5", text);
    return error_text(ExitCode::kBadData, [&] {
      const auto run = open_run(folder / "changed.h5");
      run->loss();
      run->time(Phase::kIteration, 3, 2);  // a part of it, not the changed one
    });
  };
  const auto bytes = [](double value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
  };
  const double time_s = sample_rank(1, 1, 2)[Phase::kIteration];
  CHECK(contains(message_with(bytes(time_s), bytes(2 * time_s)), "/time/iteration"));
  CHECK(contains(message_with(bytes(sample_rank(1, 1, 2).loss), bytes(0.25)), "/loss"));
  CHECK(contains(message_with("node0", "node1"), "/topology/host"));
  CHECK(contains(message_with("abc123", "abc124"), "/provenance/git revision"));
}

TEST_CASE("hdf5: a file without checksums is read") {
  const TestFolder folder;
  write_sample(folder / "run.h5", {});
  CHECK(open_run(folder / "run.h5")->has_checksums());
  {
    const Edited file(folder / "run.h5");
    for (const char* path : {"iteration/number", "loss", "time/iteration"})
      REQUIRE(H5Adelete_by_name(file.id(), path, "crc32c", H5P_DEFAULT) >= 0);
  }
  const auto run = open_run(folder / "run.h5");
  CHECK_FALSE(run->has_checksums());
  CHECK(run->loss().at(0, 0) == doctest::Approx(2.3));
  CHECK(run->time(Phase::kIteration, 3, 1).at(0, 0) == doctest::Approx(0.0103));
}

TEST_CASE("hdf5: a file cut anywhere is bad data") {
  const TestFolder folder;
  write_sample(folder / "run.h5", {});
  const std::string whole = read_text_file(folder / "run.h5");
  std::size_t wrong = 0;
  for (std::size_t cut = 0; cut < whole.size(); cut += 997) {
    write_plainly(folder / "cut.h5", whole.substr(0, cut));
    try {
      const auto run = open_run(folder / "cut.h5");
      ++wrong;
    } catch (const Error& error) {
      wrong += error.code() == ExitCode::kBadData ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("hdf5: what the system cannot read is not called damaged") {
  const TestFolder folder;
  write_sample(folder / "run.h5", {});
  const auto run = open_run(folder / "run.h5");
  // The descriptor of the library's becomes one that cannot be read from.
  const UniqueFd write_only(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed;
    if (std::filesystem::read_symlink(entry, closed) == folder / "run.h5")
      REQUIRE(::dup2(write_only.get(), std::stoi(entry.path().filename().string())) >= 0);
  }
  const std::string text = error_text(ExitCode::kInputOutput, [&] { run->loss(); });
  CHECK(contains(text, "Bad file descriptor"));
  CHECK_FALSE(contains(text, "another copy"));
}

TEST_CASE(
    "hdf5: a superblock whose addresses are not in the file is refused before HDF5 reads it") {
  // Found by fuzzing: HDF5 1.10 took 950 MB of memory for these 57 bytes.
  const std::string front("\x89HDF\r\n\x1A\n\0\0\0\x13\0\x08\x08;\x12\n\x1A\n\x03", 21);
  const std::string back("\x08\0\0\0\0\0\0\0\x08", 9);
  const TestFolder folder;
  write_plainly(folder / "run.h5", front + std::string(27, '\xF9') + back);
  CHECK(contains(error_text(ExitCode::kBadData, [&] { open_run(folder / "run.h5"); }),
                 "its superblock does not fit its 57 bytes"));
}

TEST_CASE("hdf5: a file that another program has open for writing is in use, not damaged") {
  const TestFolder folder;
  write_sample(folder / "run.h5", {});
  {
    const Edited writer(folder / "run.h5");
    std::filesystem::copy_file(folder / "run.h5", folder / "meanwhile.h5");
  }
  const std::string text =
      error_text(ExitCode::kBadData, [&] { open_run(folder / "meanwhile.h5"); });
  CHECK(contains(text, "is in use: a program has it open for writing"));
  CHECK(contains(text, "h5clear --status"));
  CHECK_FALSE(contains(text, "damaged"));
  CHECK_NOTHROW(open_run(folder / "run.h5"));
}

TEST_CASE("hdf5: superblocks of all versions are understood") {
  const TestFolder folder;
  const auto made = [&](int version) {
    const auto path = folder / ("v" + std::to_string(version) + ".h5");
    const H5Object creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
    const H5Object access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
    if (version == 1) H5Pset_istore_k(creation.id(), 64);
    if (version == 2) H5Pset_libver_bounds(access.id(), H5F_LIBVER_V18, H5F_LIBVER_V18);
    if (version == 3) H5Pset_libver_bounds(access.id(), H5F_LIBVER_V110, H5F_LIBVER_V110);
    H5Fclose(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.id(), access.id()));
    CHECK(read_text_file(path)[8] == version);
    return path;
  };
  const auto message = [](const std::filesystem::path& path) {
    return error_text(ExitCode::kBadData, [&] { open_run(path); });
  };
  for (const int version : {0, 1, 2, 3}) {
    CAPTURE(version);
    const auto path = made(version);
    CHECK_FALSE(contains(message(path), "superblock"));
    const std::string sound = read_text_file(path);
    std::string narrow = sound;
    narrow[version < 2 ? 13 : 9] = 4;  // bytes of an offset
    write_plainly(path, narrow);
    CHECK(contains(message(path), "its superblock does not fit"));
    write_plainly(path, sound.substr(0, sound.size() - 1));
    CHECK(contains(message(path), "its superblock does not fit"));
  }
}

namespace {

/// How a child that runs `body` and leaves by exit() ends: its exit code, or 1000 + its signal.
int ending_of(const std::function<int()>& body) {
  std::cout.flush();
  const pid_t child = fork();
  if (child == 0) std::exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/// Instead of the exit code, for a message that names no file of the run.
constexpr int kNamesNoFile = 1;

int code_of_error(const Error& error) {
  const bool names_file = std::string_view(error.what()).find("run.h5") != std::string_view::npos;
  return names_file ? error.exit_code() : kNamesNoFile;
}

int finish_and_report(Recorder& recorder) {
  try {
    recorder.finish(RunStatus::kComplete);
    return 0;
  } catch (const Error& error) {
    return code_of_error(error);
  }
}

std::size_t count_temporaries(const std::filesystem::path& folder) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    count += entry.path().string().find(".tmp-") != std::string::npos ? 1 : 0;
  return count;
}

}  // namespace

TEST_CASE("hdf5: a limit on the file's size at any point: exit 74, no crash, the journal whole") {
  const TestFolder folder;
  const auto output = folder / "run.h5";
  write_sample(output, {});
  const auto needed = std::filesystem::file_size(output);
  std::filesystem::remove(output);
  for (rlim_t limit = needed / 8; limit < needed; limit += needed / 8) {
    const int ending = ending_of([&] {
      Recorder recorder(output, sample_info({}));
      record_sample(recorder, {});
      std::signal(SIGXFSZ, SIG_IGN);
      const rlimit bytes{limit, limit};
      setrlimit(RLIMIT_FSIZE, &bytes);
      return finish_and_report(recorder);
    });
    CHECK(ending == static_cast<int>(ExitCode::kInputOutput));
    CHECK_FALSE(std::filesystem::exists(output));
    CHECK(count_temporaries(folder.path()) == 0);
    CHECK(open_run(journal_path(output))->iterations() == 12);
    std::filesystem::remove(journal_path(output));
  }
}

TEST_CASE("hdf5: a full disk at any point: exit 74, no crash, the journal whole") {
  const TestFolder folder;
  if (mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=160k") != 0) {
    MESSAGE("SKIP: a small disk cannot be mounted here (needs root): " << errno_text());
    return;
  }
  std::size_t full = 0;
  for (std::size_t filler = 0; filler < 150000; filler += 4096) {
    write_plainly(folder / "filler", std::string(filler, 'x'));
    const auto output = folder / "run.h5";
    const int ending = ending_of([&] {
      try {
        Recorder recorder(output, sample_info({}));
        record_sample(recorder, {});
        return finish_and_report(recorder);
      } catch (const Error& error) {
        return code_of_error(error);
      }
    });
    CAPTURE(ending);
    CHECK((ending == 0 || ending == static_cast<int>(ExitCode::kInputOutput)));
    CHECK(std::filesystem::exists(output) == (ending == 0));
    CHECK(count_temporaries(folder.path()) == 0);
    if (ending == 0) CHECK(open_run(output)->iterations() == 12);
    if (ending != 0) ++full;
    if (ending != 0 && std::filesystem::exists(journal_path(output)))
      CHECK_NOTHROW(open_run(journal_path(output)));
    std::filesystem::remove(output);
    std::filesystem::remove(journal_path(output));
  }
  CHECK(full > 5);
  umount(folder.path().c_str());
}

namespace {

bool knows_no_replace = true;

}  // namespace

/// In place of the C library's: as on a network file system that knows no RENAME_NOREPLACE.
extern "C" int renameat2(int from_folder, const char* from, int to_folder, const char* to,
                         unsigned flags) noexcept {
  if (knows_no_replace)
    return static_cast<int>(syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
  errno = EINVAL;
  return -1;
}

TEST_CASE("hdf5: a file system without RENAME_NOREPLACE gets the run file, and keeps another's") {
  const TestFolder folder;
  const auto output = folder / "run.h5";
  knows_no_replace = false;
  write_sample(output, {});
  CHECK(open_run(output)->iterations() == 12);
  CHECK(count_temporaries(folder.path()) == 0);
  const auto late = folder / "late.h5";
  Recorder recorder(late, sample_info({}));
  write_plainly(late, "another's");
  CHECK_THROWS_AS(recorder.finish(RunStatus::kComplete), Error);
  CHECK(std::filesystem::file_size(late) == 9);
  knows_no_replace = true;
}
