#include "analysis/kineto/trace_events.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "support/error.h"
#include "support/file.h"
#include "support/parse.h"

namespace gradsync::report {

namespace {

constexpr std::size_t kMostDepth = 100, kMostEventsKept = 16U << 20;
constexpr std::size_t kMostValueBytes = 64U << 20;
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

/// The text of a file in blocks, decompressed where it is compressed. Bytes that no text of JSON
/// may hold are replaced, since names hold them: newlines, and letters of other encodings.
class TraceText {
 public:
  explicit TraceText(const std::filesystem::path& path) : path_(path) {
    UniqueFd file = open_for_reading(path);
    file_.reset(gzdopen(file.get(), "rb"));
    if (!file_) throw Error(ExitCode::kOutOfMemory, "zlib cannot begin to read");
    file.release();
    gzbuffer(file_.get(), static_cast<unsigned>(block_.size()));
  }

  bool ended() { return at_ == end_ && !refill(); }
  char current() const {
    const auto byte = static_cast<unsigned char>(*at_);
    if (!in_text_ || (byte >= 0x20 && byte < 0x80)) return *at_;
    return byte < 0x20 ? ' ' : '?';
  }
  void advance() {
    const char byte = *at_++;
    if (!in_text_)
      in_text_ = byte == '"';
    else if (escaped_)
      escaped_ = false;
    else if (byte == '\\')
      escaped_ = true;
    else
      in_text_ = byte != '"';
  }
  /// Ends a value: the limit of the length counts from here.
  void mark() { since_mark_ = 0; }

 private:
  bool refill() {
    since_mark_ += static_cast<std::size_t>(end_ - block_.data());
    if (since_mark_ > kMostValueBytes)
      throw bad_trace(path_, fmt::format("holds a value of more than {} bytes", kMostValueBytes),
                      kNameTraces);
    const int count = gzread(file_.get(), block_.data(), static_cast<unsigned>(block_.size()));
    int code = Z_OK;
    const char* reason = gzerror(file_.get(), &code);
    if (code == Z_ERRNO)
      throw Error(ExitCode::kInputOutput,
                  fmt::format("cannot read '{}': {}", path_.string(), errno_text()));
    if (count < 0 || code != Z_OK)
      throw bad_trace(path_, fmt::format("cannot be decompressed: {}", reason), kCopyAgain);
    if (!begun_) require_readable({block_.data(), static_cast<std::size_t>(count)});
    begun_ = true;
    at_ = block_.data();
    end_ = at_ + count;
    return count > 0;
  }

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
  std::vector<char> block_ = std::vector<char>(1U << 18);
  const char* at_ = block_.data();
  const char* end_ = block_.data();
  std::size_t since_mark_ = 0;
  bool begun_ = false, in_text_ = false, escaped_ = false;
};

/// The text as the iterators that the parser takes; all of them stand at the same place.
class TextIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  TextIterator() = default;
  explicit TextIterator(TraceText& text) : text_(&text) {}
  char operator*() const { return text_->current(); }
  TextIterator& operator++() {
    text_->advance();
    return *this;
  }
  bool operator==(const TextIterator& other) const { return at_end() == other.at_end(); }

 private:
  bool at_end() const { return text_ == nullptr || text_->ended(); }
  TraceText* text_ = nullptr;
};

// --- names ---------------------------------------------------------------------------------------

bool begins_with_any(std::string_view text, std::initializer_list<std::string_view> beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](std::string_view beginning) { return text.starts_with(beginning); });
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

/// Of a type as operators ("float", "c10::Half") or NCCL ("Float", "BFloat16") write it; 0 for
/// others.
std::int64_t bytes_of_type(std::string_view type) {
  using Type = std::pair<std::string_view, std::int64_t>;
  static constexpr std::array<Type, 17> kTypes = {
      Type{"float", 4}, Type{"double", 8},       Type{"half", 2},         Type{"bfloat16", 2},
      Type{"long", 8},  Type{"longint", 8},      Type{"int", 4},          Type{"short", 2},
      Type{"byte", 1},  Type{"unsignedchar", 1}, Type{"signedchar", 1},   Type{"char", 1},
      Type{"bool", 1},  Type{"float32", 4},      Type{"float8e4m3fn", 1}, Type{"float8e5m2", 1},
      Type{"int8t", 1}};
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
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
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

/// Elements of the tensors in "Input Dims": the sum over innermost lists of the product of each.
class DimsCounter {
 public:
  void open() {
    product_ = 1;
    innermost_ = true;
  }
  void number(double value) {
    product_ = value >= 0 && value < 1e15 ? product_ * value : kNotMeasured;
  }
  void close() {
    if (innermost_) elements_ += product_;
    innermost_ = false;
  }
  std::int64_t elements() const {
    return elements_ >= 0 && elements_ < 1e15 ? static_cast<std::int64_t>(elements_) : -1;
  }

 private:
  double product_ = 1, elements_ = 0;
  bool innermost_ = false;
};

std::int64_t whole(double value) {
  return std::abs(value) < 9e15 ? static_cast<std::int64_t>(value) : -1;
}

std::int64_t bytes_of(std::int64_t elements, std::string_view type) {
  const std::int64_t each = bytes_of_type(type);
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

/// Sorts events into a TraceEvents.
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
        !std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; }))
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
      CollectiveFacts facts = facts_of_event(event);
      facts.elements = event.first_elements;
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

// --- the parser's calls --------------------------------------------------------------------------

/// Which value of the trace the parser is at.
enum class Key {
  kOther,
  // of the file
  kEvents,
  kDistributed,
  kDevices,
  kBaseTime,
  // of distributedInfo and deviceProperties
  kRank,
  kWorldSize,
  kBackend,
  kGroups,
  kGroupRanks,
  kDeviceName,
  // of an event
  kPhase,
  kCategory,
  kName,
  kThread,
  kTs,
  kDur,
  kArgs,
  // of its args
  kCorrelation,
  kExternalId,
  kCollective,
  kDtype,
  kInElements,
  kGroupSize,
  kDevice,
  kStream,
  kInputDims,
  kInputType,
};

using KeyName = std::pair<std::string_view, Key>;
constexpr std::array kFileKeys = {
    KeyName{"traceEvents", Key::kEvents}, KeyName{"distributedInfo", Key::kDistributed},
    KeyName{"deviceProperties", Key::kDevices}, KeyName{"baseTimeNanoseconds", Key::kBaseTime}};
constexpr std::array kDistributedKeys = {
    KeyName{"rank", Key::kRank}, KeyName{"world_size", Key::kWorldSize},
    KeyName{"backend", Key::kBackend}, KeyName{"pg_config", Key::kGroups}};
constexpr std::array kGroupKeys = {KeyName{"pg_size", Key::kGroupRanks}};
constexpr std::array kDeviceKeys = {KeyName{"name", Key::kDeviceName}};
constexpr std::array kEventKeys = {KeyName{"ph", Key::kPhase},  KeyName{"cat", Key::kCategory},
                                   KeyName{"name", Key::kName}, KeyName{"tid", Key::kThread},
                                   KeyName{"ts", Key::kTs},     KeyName{"dur", Key::kDur},
                                   KeyName{"args", Key::kArgs}};
constexpr std::array kArgsKeys = {KeyName{"correlation", Key::kCorrelation},
                                  KeyName{"External id", Key::kExternalId},
                                  KeyName{"external id", Key::kExternalId},
                                  KeyName{"Collective name", Key::kCollective},
                                  KeyName{"dtype", Key::kDtype},
                                  KeyName{"In msg nelems", Key::kInElements},
                                  KeyName{"In msg size", Key::kInElements},
                                  KeyName{"Group size", Key::kGroupSize},
                                  KeyName{"device", Key::kDevice},
                                  KeyName{"stream", Key::kStream},
                                  KeyName{"Input Dims", Key::kInputDims},
                                  KeyName{"Input type", Key::kInputType}};

template <std::size_t count>
Key key_in(const std::array<KeyName, count>& names, std::string_view text) {
  for (const auto& [name, key] : names)
    if (name == text) return key;
  return Key::kOther;
}

class TraceHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  TraceHandler(TraceEvents& trace, TraceText& text) : trace_(trace), text_(text), sorter_(trace) {}

  bool null() override { return done(); }
  bool boolean(bool) override { return done(); }
  bool number_integer(number_integer_t value) override {
    return number(static_cast<double>(value), value);
  }
  bool number_unsigned(number_unsigned_t value) override {
    return number(static_cast<double>(value),
                  static_cast<std::int64_t>(
                      std::min<std::uint64_t>(value, std::numeric_limits<std::int64_t>::max())));
  }
  bool number_float(number_float_t value, const string_t&) override {
    return number(value, whole(value));
  }
  bool binary(binary_t&) override { return done(); }

  /// Some profilers write numbers as texts.
  bool string(string_t& value) override {
    if (std::string* place = text_place()) {
      *place = std::move(value);
      return done();
    }
    if (key_ == Key::kOther) return done();
    double as_number = 0;
    std::int64_t as_whole = 0;
    const char* const end = value.data() + value.size();
    if (value.empty() || std::from_chars(value.data(), end, as_number).ptr != end) return done();
    const bool is_whole = std::from_chars(value.data(), end, as_whole).ptr == end;
    return number(as_number, is_whole ? as_whole : whole(as_number));
  }

  bool key(string_t& text) override {
    key_ = Key::kOther;
    if (depth_ == 1)
      key_ = top_ = key_in(kFileKeys, text);
    else if (depth_ == 2 && top_ == Key::kDistributed)
      key_ = field_ = key_in(kDistributedKeys, text);
    else if (depth_ == 4 && top_ == Key::kDistributed && field_ == Key::kGroups)
      key_ = key_in(kGroupKeys, text);
    else if (depth_ == 3 && top_ == Key::kDevices)
      key_ = key_in(kDeviceKeys, text);
    else if (depth_ == 3 && top_ == Key::kEvents)
      key_ = field_ = key_in(kEventKeys, text);
    else if (depth_ == 4 && in_args())
      key_ = argument_ = key_in(kArgsKeys, text);
    return done();
  }

  bool start_object(std::size_t) override {
    if (depth_ == 2 && top_ == Key::kEvents) event_ = {}, field_ = Key::kOther;
    if (depth_ == 1 && top_ == Key::kOther && !is_object_) is_list_ = true;
    if (depth_ == 0) is_object_ = true;
    return enter();
  }
  bool end_object() override {
    if (depth_ == 3 && top_ == Key::kEvents) sorter_.add(event_);
    return leave();
  }
  bool start_array(std::size_t) override {
    if (in_dims()) dims_.open();
    if (depth_ == 4 && in_args() && argument_ == Key::kInputDims) dims_ = {};
    if (depth_ == 1 && top_ == Key::kEvents) has_events_ = true;
    return enter();
  }
  bool end_array() override {
    if (depth_ == 5 && in_dims()) event_.dims_elements = dims_.elements();
    if (depth_ > 5 && in_dims()) dims_.close();
    if (depth_ == 6 && in_dims() && event_.first_elements < 0)
      event_.first_elements = dims_.elements();
    return leave();
  }

  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::json::exception& error) override {
    const std::string_view reason = error.what();
    const bool cut_off = reason.find("unexpected end of input") != reason.npos ||
                         reason.find("missing closing quote") != reason.npos ||
                         reason.find("empty input") != reason.npos;  // nlohmann-json 3.12
    if (cut_off && text_.ended())
      throw bad_trace(trace_.path, fmt::format("ends at byte {} within a value", position),
                      kCopyAgain);
    throw bad_trace(
        trace_.path,
        fmt::format("is no JSON: byte {}, near '{}'", position,
                    with_escaped_bytes(token.substr(0, 40))),
        position <= 1 ? kNameTraces
                      : "correct the text at that byte, which recording again would write again: a "
                        "quote or a backslash within a name needs a backslash before it; inf and "
                        "nan are no numbers of JSON");
  }

  void finish() {
    for (std::string* text : {&trace_.backend, &trace_.device})
      *text = printable(*text);
    if (is_list_)
      throw bad_trace(trace_.path,
                      "is a list of events without the object around it that holds traceEvents, as "
                      "PyTorch before 1.8 wrote",
                      "record it with torch.profiler of PyTorch 1.8.1 or later");
    if (!is_object_ || !has_events_)
      throw bad_trace(trace_.path, "holds no list traceEvents: torch.profiler did not write it",
                      kNameTraces);
    sorter_.finish();
    trace_.origin_ns = base_ns_ + sorter_.origin_ns();
    trace_.has_groups = least_group_ < trace_.ranks.value_or(0);
  }

 private:
  bool in_args() const { return top_ == Key::kEvents && field_ == Key::kArgs; }
  bool in_dims() const { return depth_ >= 5 && in_args() && argument_ == Key::kInputDims; }

  bool done() {
    text_.mark();
    return true;
  }
  bool enter() {
    if (++depth_ > kMostDepth)
      throw bad_trace(trace_.path, fmt::format("is nested deeper than {} levels", kMostDepth),
                      kNameTraces);
    if (depth_ > 4 || !in_args()) key_ = Key::kOther;
    return done();
  }
  bool leave() {
    --depth_;
    key_ = Key::kOther;
    return done();
  }

  /// Where the text that the parser is at belongs; null for texts that do not matter.
  std::string* text_place() {
    if (depth_ == 5 && in_args() && argument_ == Key::kInputType && event_.type.empty())
      return &event_.type;
    switch (key_) {
      case Key::kBackend:
        return &trace_.backend;
      case Key::kDeviceName:
        return trace_.device.empty() ? &trace_.device : nullptr;
      case Key::kPhase:
        return &event_.phase;
      case Key::kCategory:
        return &event_.category;
      case Key::kName:
        return &event_.name;
      case Key::kThread:
        return &event_.thread;
      case Key::kCollective:
        return &event_.collective;
      case Key::kDtype:
        return &event_.dtype;
      default:
        return nullptr;
    }
  }

  bool number(double value, std::int64_t whole_value) {
    if (in_dims()) dims_.number(value);
    switch (key_) {
      case Key::kBaseTime:
        base_ns_ = std::abs(value) <= kMostMicroseconds * 1e3 ? whole_value : 0;
        break;
      case Key::kRank:
        trace_.rank = whole_value;
        break;
      case Key::kWorldSize:
        trace_.ranks = whole_value;
        break;
      case Key::kGroupRanks:
        least_group_ = std::min(least_group_, whole_value);
        break;
      case Key::kThread:
        event_.thread = std::to_string(whole_value);
        break;
      case Key::kTs:
        event_.ts_us = value;
        break;
      case Key::kDur:
        event_.dur_us = value;
        break;
      case Key::kCorrelation:
        event_.correlation = whole_value;
        break;
      case Key::kExternalId:
        event_.external_id = whole_value;
        break;
      case Key::kInElements:
        event_.in_elements = whole_value;
        break;
      case Key::kGroupSize:
        event_.group_ranks = whole_value;
        break;
      case Key::kDevice:
        event_.device = whole_value;
        break;
      case Key::kStream:
        event_.stream = whole_value;
        break;
      default:
        break;
    }
    return done();
  }

  TraceEvents& trace_;
  TraceText& text_;
  EventSorter sorter_;
  RawEvent event_;
  DimsCounter dims_;
  std::size_t depth_ = 0;
  Key key_ = Key::kOther;       // of the value that follows
  Key top_ = Key::kOther;       // of the file
  Key field_ = Key::kOther;     // of the event
  Key argument_ = Key::kOther;  // of its args
  bool is_object_ = false, is_list_ = false, has_events_ = false;
  std::int64_t base_ns_ = 0;
  std::int64_t least_group_ = std::numeric_limits<std::int64_t>::max();  // of ranks
};

}  // namespace

TraceEvents read_trace_events(const std::filesystem::path& path) {
  TraceEvents trace;
  trace.path = path;
  TraceText text(path);
  TraceHandler handler(trace, text);
  nlohmann::json::sax_parse(TextIterator(text), TextIterator(), &handler);
  handler.finish();
  return trace;
}

}  // namespace gradsync::report
