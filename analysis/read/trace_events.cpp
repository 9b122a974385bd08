// SPDX-License-Identifier: BSD-3-Clause
#include <simdjson.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "analysis/read/rank_timeline.h"
#include "base/error.h"
#include "base/file.h"
#include "base/parse.h"

namespace gradsync::report {

namespace {

constexpr std::size_t kMostDepth = 100, kMostEventsKept = 16U << 20;
constexpr std::size_t kMostValueBytes = 64U << 20;
// gzip reaches 1,032 with one repeated byte, and about 20 with traces.
constexpr std::size_t kMostCompression = 200, kWorthJudging = 256U << 20;
constexpr double kMostMicroseconds = 4e15;  // the year 2096; in ns it fits 64 bits twice
constexpr double kLongOperator_s = 0.05;
constexpr const char* kCopyAgain =
    "copy the trace again, or record it again with torch.profiler; a process that is killed leaves "
    "a part of it";
constexpr const char* kNameTraces =
    "name files that prof.export_chrome_trace() or torch.profiler.tensorboard_trace_handler wrote";

Error bad_trace(const std::filesystem::path& path, const std::string& why, const std::string& fix) {
  return {ExitCode::kBadData, fmt::format("'{}' {}", path.string(), why), fix};
}

/// What a file may be packed with, by how it begins.
struct Packing {
  std::string_view begin, name, unpack;
};
constexpr std::array<Packing, 5> kPackings = {
    Packing{"PK\x03\x04", "a zip archive", "unzip"},
    Packing{"\x28\xb5\x2f\xfd", "compressed with zstd", "unzstd"},
    Packing{"\xfd\x37zXZ", "compressed with xz", "unxz"},
    Packing{"BZh", "compressed with bzip2", "bunzip2"},
    Packing{"7z\xbc\xaf", "a 7z archive", "7z x"}};

class TraceFile {
 public:
  explicit TraceFile(const std::filesystem::path& path) : path_(path) {
    UniqueFd file = open_for_reading(path);
    file_.reset(gzdopen(file.get(), "rb"));
    if (!file_) throw Error(ExitCode::kOutOfMemory, "zlib cannot begin to read");
    file.release();
    gzbuffer(file_.get(), 1U << 18);
  }

  /// How many bytes came; 0 at the end.
  std::size_t read(char* to, std::size_t most) {
    const int count = gzread(file_.get(), to, static_cast<unsigned>(most));
    int code = Z_OK;
    const char* reason = gzerror(file_.get(), &code);
    if (code == Z_ERRNO)
      throw Error(ExitCode::kInputOutput,
                  fmt::format("cannot read '{}': {}", path_.string(), errno_text()));
    if (count < 0 || code != Z_OK)
      throw bad_trace(path_, fmt::format("cannot be decompressed: {}", reason), kCopyAgain);
    bytes_ += static_cast<std::size_t>(count);
    const auto compressed = static_cast<std::size_t>(std::max<z_off_t>(1, gzoffset(file_.get())));
    if (bytes_ > kWorthJudging && bytes_ / compressed > kMostCompression)
      throw bad_trace(path_,
                      fmt::format("grows to more than {} times its size when it is decompressed",
                                  kMostCompression),
                      "decompress it with gunzip, look at what is in it, and name the result");
    if (!begun_) require_readable({to, static_cast<std::size_t>(count)});
    begun_ = true;
    return static_cast<std::size_t>(count);
  }

 private:
  void require_readable(std::string_view begin) const {
    for (const Packing& packing : kPackings)
      if (begin.starts_with(packing.begin))
        throw bad_trace(
            path_,
            fmt::format("is {}; traces are read as JSON, or compressed with gzip", packing.name),
            fmt::format("{} {}", packing.unpack, path_.string()));
  }

  struct Close {
    void operator()(gzFile file) const { gzclose(file); }
  };
  std::filesystem::path path_;
  std::unique_ptr<gzFile_s, Close> file_;
  std::size_t bytes_ = 0;
  bool begun_ = false;
};

// --- names ---------------------------------------------------------------------------------------

bool begins_with_any(std::string_view text, std::initializer_list<std::string_view> beginnings) {
  return std::ranges::any_of(
      beginnings, [&](std::string_view beginning) { return text.starts_with(beginning); });
}

/// Small letters without '_': "_allgather_base" and "AllGather" have one name for a collective.
std::string plain_name(std::string_view text) {
  std::string plain;
  for (const char letter : text.substr(0, 100))
    if (letter != '_') plain += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return plain;
}

std::optional<CollectiveKind> kind_named(std::string_view text) {
  using enum CollectiveKind;
  using Named = std::pair<std::string_view, CollectiveKind>;
  // A name may hold several of these: the longer ones first.
  static constexpr std::array<Named, 9> kNames = {Named{"reducescatter", kReduceScatter},
                                                  Named{"alltoall", kAllToAll},
                                                  Named{"allreduce", kAllReduce},
                                                  Named{"allgather", kAllGather},
                                                  Named{"broadcast", kBroadcast},
                                                  Named{"barrier", kBarrier},
                                                  Named{"gather", kGather},
                                                  Named{"scatter", kScatter},
                                                  Named{"reduce", kReduce}};
  const std::string plain = plain_name(text);
  for (const auto& [name, kind] : kNames)
    if (plain.find(name) != std::string::npos) return kind;
  return std::nullopt;
}

/// Bytes of a value of a type as operators ("float", "c10::Half") or NCCL ("Float", "BFloat16")
/// write it; 0 for other names.
std::int64_t value_bytes(std::string_view type) {
  using Type = std::pair<std::string_view, std::int64_t>;
  static constexpr std::array<Type, 18> kTypes = {
      Type{"float", 4}, Type{"double", 8},       Type{"half", 2},         Type{"bfloat16", 2},
      Type{"long", 8},  Type{"longint", 8},      Type{"int", 4},          Type{"short", 2},
      Type{"byte", 1},  Type{"unsignedchar", 1}, Type{"signedchar", 1},   Type{"char", 1},
      Type{"bool", 1},  Type{"float32", 4},      Type{"float8e4m3fn", 1}, Type{"float8e5m2", 1},
      Type{"int8t", 1}, Type{"shortint", 2}};
  std::string plain = plain_name(type);
  std::erase(plain, ' ');
  if (plain.starts_with("c10::")) plain.erase(0, 5);
  for (const auto& [name, bytes] : kTypes)
    if (name == plain) return bytes;
  return 0;
}

/// A name of a library or a device as a run file can hold it.
std::string printable(std::string text) {
  constexpr std::size_t kMostLetters = 200;
  if (text.size() > kMostLetters) text.resize(kMostLetters);
  std::ranges::replace_if(
      text, [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

// --- one event -----------------------------------------------------------------------------------

/// The fields of an event that matter, cleared for each.
struct RawEvent {
  std::string phase, category, name, thread, type, collective, dtype;
  double ts_us = kNotMeasured, dur_us = kNotMeasured;
  std::int64_t correlation = -1, external_id = -1, in_elements = -1, group_ranks = -1;
  std::int64_t device = -1, stream = -1;
  std::int64_t dims_elements = -1, first_elements = -1;  ///< of all tensors; of the first argument
};

std::int64_t whole(double value) {
  return std::abs(value) < 9e15 ? static_cast<std::int64_t>(value) : -1;
}

std::int64_t bytes_of(std::int64_t elements, std::string_view type) {
  const std::int64_t each = value_bytes(type);
  return elements >= 0 && elements < (std::int64_t{1} << 56) && each > 0 ? elements * each : -1;
}

CollectiveFacts facts_of_event(const RawEvent& event) {
  CollectiveFacts facts;
  facts.kind = kind_named(event.collective.empty() ? event.name : event.collective);
  facts.bytes = event.dtype.empty() ? bytes_of(event.dims_elements, event.type)
                                    : bytes_of(event.in_elements, event.dtype);
  // A rank that gives nothing, as others than the root of a scatter, says nothing of the payload.
  if (facts.bytes == 0) facts.bytes = -1;
  if (facts.kind == CollectiveKind::kBarrier) facts.bytes = 0;
  facts.elements = event.dims_elements;
  facts.group_ranks = event.group_ranks > 0 ? event.group_ranks : -1;
  return facts;
}

/// Operators of one thread in the order of the file, where an operator mostly follows the one that
/// it is called by: what lies in the last one is merged into it. Long ones stand by themselves, so
/// that one whose length is wrong does not swallow others.
class ThreadOperators {
 public:
  /// Whether it takes memory.
  bool add(const Interval& when) {
    if (when.length_s() > kLongOperator_s) {
      all_.insert(all_.end() - (all_.empty() ? 0 : 1), when);
      return true;
    }
    if (!all_.empty() && when.begin_s >= all_.back().begin_s && when.begin_s <= all_.back().end_s &&
        all_.back().length_s() <= kLongOperator_s) {
      all_.back().end_s = std::max(all_.back().end_s, when.end_s);
      return false;
    }
    all_.push_back(when);
    return true;
  }
  const std::vector<Interval>& all() const { return all_; }

 private:
  std::vector<Interval> all_;
};

class EventSorter {
 public:
  explicit EventSorter(TraceEvents& trace) : trace_(trace) {}

  void add(const RawEvent& event) {
    if (event.phase != "X") return;
    if (!has_time(event)) {
      ++trace_.without_time;
      return;
    }
    if (!origin_us_) origin_us_ = event.ts_us;
    const double begin_s = (event.ts_us - *origin_us_) * 1e-6;
    sort(event, {begin_s, begin_s + event.dur_us * 1e-6});
  }

  void finish() {
    trace_.zero_s = -origin_us_.value_or(0) * 1e-6;
    trace_.data_parallel =
        devices_.size() > 1 && (trace_.data_parallel || !trace_.collectives.empty());
    for (auto& [thread, operators] : threads_)
      trace_.operators.insert(trace_.operators.end(), operators.all().begin(),
                              operators.all().end());
  }
  std::int64_t origin_ns() const { return std::llround(origin_us_.value_or(0) * 1e3); }

 private:
  static bool has_time(const RawEvent& event) {
    return std::abs(event.ts_us) <= kMostMicroseconds && event.dur_us >= 0 &&
           event.dur_us <= kMostMicroseconds;
  }

  void sort(const RawEvent& event, const Interval& when) {
    const std::string category = plain_name(event.category);
    if (category == "kernel")
      add_kernel(event, when);
    else if (begins_with_any(category, {"gpumemcpy", "gpumemset", "memcpy", "memset"}))
      keep(trace_.device_work, {when, event.correlation, false, stream_of(event)});
    else if (category == "gpuuserannotation")
      add_device_annotation(event, when);
    else if (begins_with_any(category, {"cuda", "runtime", "hip"}))
      add_launch(event, when);
    else if (begins_with_any(category, {"userannotation", "cpuop", "operator"}))
      add_on_cpu(event, when, !category.starts_with("user"));
  }

  void add_kernel(const RawEvent& event, const Interval& when) {
    if (!event.collective.empty() || plain_name(event.name).starts_with("nccl"))
      keep(trace_.collectives, {facts_of_event(event), when, event.correlation, event.external_id});
    else
      keep(trace_.device_work, {when, event.correlation, true, stream_of(event)});
    if (devices_.size() < 2) devices_.insert(event.device);
  }

  std::int32_t stream_of(const RawEvent& event) {
    if (event.stream < 0) return -1;
    return streams_
        .emplace(std::pair{event.device, event.stream}, static_cast<std::int32_t>(streams_.size()))
        .first->second;
  }

  void add_device_annotation(const RawEvent& event, const Interval& when) {
    if (event.name.starts_with("Optimizer.step#")) keep(trace_.device_optimizer, when);
    if (is_forward(event.name)) keep(trace_.device_forward, when);
  }

  void add_launch(const RawEvent& event, const Interval& when) {
    const auto holds = [&](std::string_view word) {
      return event.name.find(word) != std::string::npos;
    };
    if (event.correlation >= 0 && (holds("Launch") || holds("Mem")))
      keep(trace_.launches,
           {event.correlation, when, event.name.starts_with("cu") && !holds("Graph")});
  }

  static bool is_forward(std::string_view name) {
    return begins_with_any(name, {"DistributedDataParallel.forward", "DataParallel.forward",
                                  "FullyShardedDataParallel.forward"});
  }

  void add_on_cpu(const RawEvent& event, const Interval& when, bool is_operator) {
    const std::string& name = event.name;
    if (name.starts_with("ProfilerStep#"))
      add_step(name, when);
    else if (name.starts_with("Optimizer.step#"))
      keep(trace_.optimizer, when);
    else if (name.starts_with("enumerate(DataLoader)"))
      keep(trace_.data, when);
    else if (is_forward(name))
      add_forward(name, when);
    else if (begins_with_any(name, {"gloo:", "mpi:"}))
      keep(trace_.collectives, {facts_of_event(event), when});
    else if (is_operator)
      add_operator(event, when);
  }

  void add_step(const std::string& name, const Interval& when) {
    const std::string_view digits = std::string_view(name).substr(13);
    if (digits.empty() || digits.size() > 15 ||
        !std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; }))
      return;
    keep(trace_.steps, {std::stoll(std::string(digits)), when});
  }

  void add_forward(const std::string& name, const Interval& when) {
    trace_.ddp = trace_.ddp || name.starts_with("DistributedDataParallel");
    trace_.data_parallel = trace_.data_parallel || name.starts_with("DataParallel");
    keep(trace_.forward, when);
  }

  void add_operator(const RawEvent& event, const Interval& when) {
    const std::string& name = event.name;
    if (name.starts_with("autograd::engine::evaluate_function")) keep(trace_.backward, when);
    if (begins_with_any(name, {"c10d::", "record_param_comms",
                               "_c10d_functional::", "c10d_functional::", "nccl:"})) {
      keep(trace_.calls, when);
      // A functional collective makes the call of c10d that moves the data, in itself.
      if (begins_with_any(name, {"_c10d_functional::", "c10d_functional::"}))
        return count_kept(threads_[event.thread].add(when));
      CollectiveFacts facts = facts_of_event(event);
      facts.elements = event.first_elements;
      // Without names for its arguments each that is no tensor counts as a value.
      if (name == "record_param_comms" && event.dtype.empty())
        facts.bytes = bytes_of(event.first_elements, event.type);
      keep(trace_.posted, {facts, when.begin_s, event.external_id});
    }
    count_kept(threads_[event.thread].add(when));
  }

  template <typename Kept>
  void keep(std::vector<Kept>& list, const Kept& one) {
    list.push_back(one);
    count_kept(true);
  }
  void count_kept(bool kept) {
    if (kept && ++kept_ > kMostEventsKept)
      throw bad_trace(
          trace_.path,
          fmt::format("holds more than {} events of operators and kernels", kMostEventsKept),
          "record fewer iterations: schedule(active=10)");
  }

  TraceEvents& trace_;
  std::map<std::string, ThreadOperators> threads_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::int32_t> streams_;  // of device and stream
  std::set<std::int64_t> devices_;                                         // two of them at most
  std::optional<double> origin_us_;
  std::size_t kept_ = 0;
};

// --- the JSON of events --------------------------------------------------------------------------

namespace ondemand = simdjson::ondemand;

enum class Part { kArgs, kInputDims, kInputType };
/// What the value of a key is of an event; nothing for keys that do not matter.
using Place = std::variant<std::monostate, std::string RawEvent::*, double RawEvent::*,
                           std::int64_t RawEvent::*, Part>;
using Key = std::pair<std::string_view, Place>;
constexpr std::array kEventKeys = {Key{"ph", &RawEvent::phase},  Key{"cat", &RawEvent::category},
                                   Key{"name", &RawEvent::name}, Key{"tid", &RawEvent::thread},
                                   Key{"ts", &RawEvent::ts_us},  Key{"dur", &RawEvent::dur_us},
                                   Key{"args", Part::kArgs}};
constexpr std::array kArgsKeys = {Key{"correlation", &RawEvent::correlation},
                                  Key{"External id", &RawEvent::external_id},
                                  Key{"external id", &RawEvent::external_id},
                                  Key{"Collective name", &RawEvent::collective},
                                  Key{"dtype", &RawEvent::dtype},
                                  Key{"In msg nelems", &RawEvent::in_elements},
                                  Key{"In msg size", &RawEvent::in_elements},
                                  Key{"Group size", &RawEvent::group_ranks},
                                  Key{"device", &RawEvent::device},
                                  Key{"stream", &RawEvent::stream},
                                  Key{"Input Dims", Part::kInputDims},
                                  Key{"Input type", Part::kInputType}};

template <std::size_t count>
Place place_of(const std::array<Key, count>& keys, std::string_view text) {
  for (const auto& [name, place] : keys)
    if (name == text) return place;
  return {};
}

/// Some profilers write numbers as texts.
struct Number {
  double value = kNotMeasured;
  std::int64_t whole = -1;
};

Number number_from(std::string_view text) {
  Number number;
  const char* const end = text.data() + text.size();
  if (text.empty() || std::from_chars(text.data(), end, number.value).ptr != end) return {};
  if (std::from_chars(text.data(), end, number.whole).ptr != end)
    number.whole = whole(number.value);
  return number;
}

/// Reads lists of events. Values that do not matter are parsed too: invalid JSON must not pass.
/// Throws simdjson_error.
class EventParser {
 public:
  explicit EventParser(EventSorter& sorter) : sorter_(sorter) {}

  /// `text` is "[…]"; behind it lie SIMDJSON_PADDING bytes, of any value.
  void parse(std::string_view text) {
    list_.reset();
    list_ = parser_.iterate(text.data(), text.size(), text.size() + simdjson::SIMDJSON_PADDING)
                .take_value();
    for (ondemand::value one : list_->get_array()) {
      if (one.type() != ondemand::json_type::object) {
        check(one);
        continue;
      }
      event_ = {};
      for (ondemand::field field : one.get_object())
        read(place_of(kEventKeys, std::string_view(field.unescaped_key())), field.value());
      sorter_.add(event_);
    }
  }
  /// Where the parser stopped; null if it cannot tell.
  const char* place() {
    const char* place = nullptr;
    const bool told = list_ && list_->current_location().get(place) == simdjson::SUCCESS;
    return told ? place : nullptr;
  }

 private:
  void read(const Place& place, ondemand::value value) {
    const ondemand::json_type type = value.type();
    const Part* part = std::get_if<Part>(&place);
    const auto is = [&](Part wanted) { return part && *part == wanted; };
    if (is(Part::kArgs) && type == ondemand::json_type::object)
      for (ondemand::field field : value.get_object())
        read(place_of(kArgsKeys, std::string_view(field.unescaped_key())), field.value());
    else if (is(Part::kInputDims) && type == ondemand::json_type::array)
      read_dims(value.get_array());
    else if (is(Part::kInputType) && type == ondemand::json_type::array)
      read_types(value.get_array());
    else if (type == ondemand::json_type::string)
      set(place, std::string_view(value.get_string()));
    else if (type == ondemand::json_type::number)
      set(place, number_in(value));
    else
      check(value);
  }

  // Not get_number(), which makes 0 of numbers of 19 digits (simdjson 3.0.1).
  static Number number_in(ondemand::value value) {
    const double number = value.get_double();
    return {number, whole(number)};
  }

  static void check(ondemand::value value) {
    switch (value.type()) {
      case ondemand::json_type::object:
        for (ondemand::field field : value.get_object())
          check(field.value());
        break;
      case ondemand::json_type::array:
        for (ondemand::value one : value.get_array())
          check(one);
        break;
      case ondemand::json_type::string:
        static_cast<void>(std::string_view(value.get_string()));
        break;
      case ondemand::json_type::number:
        static_cast<void>(number_in(value));
        break;
      case ondemand::json_type::boolean:
        static_cast<void>(bool(value.get_bool()));
        break;
      case ondemand::json_type::null:
        if (!bool(value.is_null())) throw simdjson::simdjson_error(simdjson::N_ATOM_ERROR);
        break;
    }
  }

  void read_types(ondemand::array types) {
    for (ondemand::value type : types)
      if (type.type() == ondemand::json_type::string && event_.type.empty())
        event_.type.assign(std::string_view(type.get_string()));
      else
        check(type);
  }

  /// Elements of all tensors in "Input Dims", and of those of the first argument.
  void read_dims(ondemand::array arguments) {
    const auto count = [](double elements) {
      return elements >= 0 && elements < 1e15 ? static_cast<std::int64_t>(elements) : -1;
    };
    double elements = 0;
    for (ondemand::value argument : arguments) {
      elements += elements_in(argument);
      if (event_.first_elements < 0) event_.first_elements = count(elements);
    }
    event_.dims_elements = count(elements);
  }

  /// The product of a list of numbers; of lists the sum over the innermost ones.
  static double elements_in(ondemand::value value) {
    if (value.type() != ondemand::json_type::array) {
      check(value);
      return 0;
    }
    double product = 1, sum = 0;
    bool innermost = true;
    for (ondemand::value one : value.get_array())
      if (one.type() == ondemand::json_type::array) {
        sum += elements_in(one);
        innermost = false;
      } else if (one.type() == ondemand::json_type::number) {
        const double size = number_in(one).value;
        product *= size >= 0 && size < 1e15 ? size : kNotMeasured;
      } else {
        check(one);
      }
    return innermost ? product : sum;
  }

  void set(const Place& place, std::string_view text) {
    if (const auto* member = std::get_if<std::string RawEvent::*>(&place))
      (event_.**member).assign(text);
    else if (place.index() > 0)
      set(place, number_from(text));
  }

  void set(const Place& place, const Number& number) {
    if (const auto* time = std::get_if<double RawEvent::*>(&place))
      event_.** time = number.value;
    else if (const auto* count = std::get_if<std::int64_t RawEvent::*>(&place))
      event_.** count = number.whole;
    else if (place == Place(&RawEvent::thread))
      event_.thread = std::to_string(number.whole);
  }

  EventSorter& sorter_;
  RawEvent event_;
  ondemand::parser parser_;
  std::optional<ondemand::document> list_;  ///< none where the text was refused as a whole
};

// --- the file ------------------------------------------------------------------------------------

/// Reads the text in windows: of the list traceEvents each goes to the parser of events as far as
/// its events are whole, all else is kept. Bytes that no text of JSON may hold are replaced, since
/// names hold them: newlines, and letters of other encodings.
class TraceReader {
 public:
  explicit TraceReader(TraceEvents& trace)
      : trace_(trace), file_(trace.path), sorter_(trace), parser_(sorter_) {}

  void read() {
    constexpr std::size_t kBlock = 1U << 20;
    std::size_t held = 1;  // before the first byte is place for a bracket
    for (;;) {
      if (held > kMostValueBytes || rest_.size() > kMostValueBytes)
        throw bad_trace(trace_.path,
                        fmt::format("holds a value of more than {} bytes", kMostValueBytes),
                        kNameTraces);
      window_.resize(held + kBlock + 1 + simdjson::SIMDJSON_PADDING);
      const std::size_t count = file_.read(window_.data() + held, kBlock);
      if (count == 0) break;
      held = scan(held, held + count);
    }
    if (depth_ > 0 || in_text_ || rest_.find_first_not_of(" \t\r\n") == std::string::npos)
      throw bad_trace(trace_.path, fmt::format("ends at byte {} within a value", bytes_),
                      kCopyAgain);
    read_rest();
  }

 private:
  /// Takes the bytes from `from` on; returns how many remain in the window.
  std::size_t scan(std::size_t from, std::size_t to) {
    std::size_t begin = 1, whole_until = 1;
    before_window_ = bytes_ + 1 - from;
    for (std::size_t i = from; i < to; ++i) {
      if (in_text_) {
        i = scan_text(i, to) - 1;
        continue;
      }
      const char byte = window_[i];
      const bool was_in_events = in_events_;
      if (byte == '"') {
        in_text_ = true;
        text_begin_ = rest_.size() + 1;
      } else if (byte == '{' || byte == '[') {
        open(byte);
        if (in_events_ && !was_in_events) begin = whole_until = i + 1;
      } else if (byte == '}' || byte == ']') {
        close();
        if (was_in_events && depth_ == 2) whole_until = i + 1;
        if (was_in_events && !in_events_) parse(begin, i);
      }
      if (!in_events_ || !was_in_events) rest_ += byte;
    }
    bytes_ += to - from;
    if (!in_events_) return 1;
    parse(begin, whole_until);
    std::copy(window_.begin() + static_cast<std::ptrdiff_t>(whole_until),
              window_.begin() + static_cast<std::ptrdiff_t>(to), window_.begin() + 1);
    return to - whole_until + 1;
  }

  /// Returns where the text ends, or `to`.
  std::size_t scan_text(std::size_t from, std::size_t to) {
    std::size_t i = from;
    while (in_text_ && i < to) {
      char& byte = window_[i++];
      const auto code = static_cast<unsigned char>(byte);
      if (code < 0x20 || code >= 0x80) byte = code < 0x20 ? ' ' : '?';
      if (escaped_)
        escaped_ = false;
      else if (byte == '\\')
        escaped_ = true;
      else
        in_text_ = byte != '"';
    }
    if (in_events_) return i;
    rest_.append(window_.data() + from, i - from);
    if (!in_text_ && depth_ == 1) key_ = rest_.substr(text_begin_, rest_.size() - 1 - text_begin_);
    return i;
  }

  void open(char bracket) {
    if (++depth_ > kMostDepth)
      throw bad_trace(trace_.path, fmt::format("is nested deeper than {} levels", kMostDepth),
                      kNameTraces);
    if (depth_ == 1) is_list_ = bracket == '[';
    if (depth_ == 2 && is_list_ && bracket == '{')
      throw bad_trace(trace_.path,
                      "is a list of events without the object around it that holds traceEvents, as "
                      "PyTorch before 1.8 wrote",
                      "record it with torch.profiler of PyTorch 1.8.1 or later");
    if (depth_ == 2 && !is_list_ && bracket == '[' && key_ == "traceEvents")
      in_events_ = has_events_ = true, first_ = true;
  }
  void close() {
    if (depth_ == 0) throw no_json(bytes_ + 1, "}");
    if (--depth_ == 1) in_events_ = false;
  }

  /// Events of the window, with the comma before them unless they are the first.
  void parse(std::size_t begin, std::size_t end) {
    constexpr const char* kBlank = " \t\r\n";
    const std::string_view text(window_.data(), end);
    std::size_t at = text.find_first_not_of(kBlank, begin);
    if (at == text.npos) return;
    if (!first_ && text[at] != ',') throw no_json(before_window_ + at, text.substr(at));
    at -= first_ ? 1 : 0;
    first_ = false;
    const char before = window_[at], after = window_[end];
    window_[at] = '[';
    window_[end] = ']';
    try {
      parser_.parse({window_.data() + at, end + 1 - at});
    } catch (const simdjson::simdjson_error&) {
      const char* place = parser_.place();
      const char* const last = window_.data() + end;
      if (place == nullptr || place < window_.data() || place > last) place = window_.data() + at;
      throw no_json(before_window_ + static_cast<std::size_t>(place - window_.data()),
                    {place, static_cast<std::size_t>(last - place)});
    }
    window_[at] = before;
    window_[end] = after;
  }

  Error no_json(std::size_t position, std::string_view near) const {
    return bad_trace(
        trace_.path,
        fmt::format("is no JSON: byte {}, near '{}'", position,
                    with_escaped_bytes(std::string(near.substr(0, 40)))),
        position <= 1 ? kNameTraces
                      : "correct the text at that byte, which recording again would write again: a "
                        "quote or a backslash within a name needs a backslash before it; inf and "
                        "nan are no numbers of JSON");
  }

  void read_rest() {
    nlohmann::json rest;
    try {
      rest = nlohmann::json::parse(rest_);
    } catch (const nlohmann::json::parse_error& error) {
      const std::size_t at = std::max<std::size_t>(error.byte, 1) - 1;
      throw no_json(at + 1, std::string_view(rest_).substr(std::min(at, rest_.size())));
    } catch (const nlohmann::json::out_of_range&) {
      throw bad_trace(trace_.path, "holds a number that is too large beside its events",
                      kNameTraces);
    }
    if (!rest.is_object() || !has_events_)
      throw bad_trace(trace_.path, "holds no list traceEvents: torch.profiler did not write it",
                      kNameTraces);
    const auto member = [](const nlohmann::json& of, const char* name) {
      const auto found = of.is_object() ? of.find(name) : of.end();
      return of.is_object() && found != of.end() ? *found : nlohmann::json();
    };
    const auto number = [](const nlohmann::json& value) -> std::optional<Number> {
      if (value.is_string()) return number_from(value.get_ref<const std::string&>());
      if (!value.is_number()) return std::nullopt;
      return Number{value.get<double>(), value.is_number_integer() ? value.get<std::int64_t>()
                                                                   : whole(value.get<double>())};
    };
    const auto text = [](const nlohmann::json& value) {
      return printable(value.is_string() ? value.get<std::string>() : std::string());
    };
    const nlohmann::json job = member(rest, "distributedInfo");
    if (const auto rank = number(member(job, "rank"))) trace_.rank = rank->whole;
    if (const auto ranks = number(member(job, "world_size"))) trace_.ranks = ranks->whole;
    trace_.backend = text(member(job, "backend"));
    for (const nlohmann::json& group : member(job, "pg_config"))
      if (const auto ranks = number(member(group, "pg_size")))
        trace_.has_groups = trace_.has_groups || ranks->whole < trace_.ranks.value_or(0);
    for (const nlohmann::json& device : member(rest, "deviceProperties"))
      if (trace_.device.empty()) trace_.device = text(member(device, "name"));
    sorter_.finish();
    trace_.origin_ns = sorter_.origin_ns();
    if (const auto base = number(member(rest, "baseTimeNanoseconds")))
      if (std::abs(base->value) <= kMostMicroseconds * 1e3) trace_.origin_ns += base->whole;
  }

  TraceEvents& trace_;
  TraceFile file_;
  EventSorter sorter_;
  EventParser parser_;
  std::vector<char> window_;
  std::string rest_, key_;  // the text but for the events; of the file, the key that was read last
  std::size_t bytes_ = 0, depth_ = 0, text_begin_ = 0;
  std::size_t before_window_ = 0;  // bytes; modulo 2^64, since a window has one byte of its own
  bool in_text_ = false, escaped_ = false;
  bool is_list_ = false, in_events_ = false, has_events_ = false, first_ = false;
};

}  // namespace

TraceEvents read_trace_events(const std::filesystem::path& path) {
  TraceEvents trace;
  trace.path = path;
  TraceReader(trace).read();
  return trace;
}

}  // namespace gradsync::report
