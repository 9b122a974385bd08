#include "record/hdf5_writer.h"

#include <algorithm>
#include <functional>
#include <memory>

#include <fmt/format.h>

#include "record/hdf5_layout.h"
#include "record/hdf5_output.h"
#include "record/hdf5_quantization.h"
#include "support/error.h"

namespace gradsync {

namespace {

using enum Dimension;
using Rows = std::vector<IterationRow>;

void write_header(Hdf5Output& file, const RunReader& run) {
  file.set_attribute("schema", schema_text(run.info().schema));
  file.set_attribute("run_id", run.info().run_id);
  file.set_attribute("created", run.info().created);
  file.set_attribute("finished", run.finished());
  file.set_attribute("status", status_name(run.status()));
  file.set_attribute("command_line", run.info().command_line);
}

void write_config(Hdf5Output& file, const RunInfo& info) {
  file.make_group("config");
  for (const ConfigEntry& entry : info.config)
    file.write_text("config/" + entry.name, entry.value, "option --" + entry.name, entry.source);
  file.make_group("provenance");
  for (const NamedText& entry : info.provenance)
    file.write_text("provenance/" + entry.name, entry.value, entry.name);
}

/// One value of every element of `items`.
template <typename Item, typename Value>
auto column(const std::vector<Item>& items, Value value) {
  std::vector<std::decay_t<decltype(value(items.front()))>> values;
  values.reserve(items.size());
  for (const Item& item : items)
    values.push_back(value(item));
  return values;
}

void write_topology(Hdf5Output& file, const std::vector<RankPlace>& places) {
  const auto spec = [](const char* name, const char* units, const char* long_name) {
    return DatasetSpec{std::string("topology/") + name, {kRanks}, units, long_name};
  };
  file.make_group("topology");
  file.write(spec("rank", "1", "MPI rank"), column(places, [](auto& p) { return p.rank; }));
  file.write(spec("local_rank", "1", "rank among those of its host"),
             column(places, [](auto& p) { return p.local_rank; }));
  file.write(spec("host", "1", "host name"), column(places, [](auto& p) { return p.host; }));
  file.write(spec("device", "1", "processor or GPU"),
             column(places, [](auto& p) { return p.device; }));
  file.write(spec("device_uuid", "1", "UUID of the GPU, empty on a CPU"),
             column(places, [](auto& p) { return p.device_uuid; }));
  file.write(spec("affinity", "1", "cores it may use"),
             column(places, [](auto& p) { return p.affinity; }));
  file.write(spec("threads", "1", "compute threads"),
             column(places, [](auto& p) { return p.threads; }));
  file.write(spec("clock_offset", "s", "added to the clock of the rank it reads that of rank 0"),
             column(places, [](auto& p) { return p.clock_offset_s; }));
  file.write(spec("clock_uncertainty", "s", "half of the shortest round trip"),
             column(places, [](auto& p) { return p.clock_uncertainty_s; }));
}

template <typename Number, typename Row>
void write_fields(Hdf5Output& file, const std::vector<Field<Number, Row>>& fields,
                  std::vector<Row>& rows) {
  for (const auto& field : fields) {
    std::vector<Number> values;
    for (Row& row : rows)
      values.push_back(field.of(row));
    file.write(field.spec, values);
  }
}

template <typename Row, typename Rank>
void write_rank_fields(Hdf5Output& file, const std::vector<Field<double, Rank>>& fields,
                       std::vector<Row>& rows) {
  for (const auto& field : fields) {
    std::vector<double> values;
    for (Row& row : rows)
      for (Rank& rank : row.ranks)
        values.push_back(field.of(rank));
    file.write(field.spec, values);
  }
}

void write_epochs(Hdf5Output& file, std::vector<EpochRow> epochs) {
  const auto spec = [](const char* name, const char* long_name) {
    return DatasetSpec{std::string("epoch/") + name, {kEpochs}, "1", long_name};
  };
  file.make_group("epoch");
  file.write(spec("number", "epoch, from 0"), column(epochs, [](auto& e) { return e.epoch; }));
  file.write(spec("iterations", "iterations of the epoch"),
             column(epochs, [](auto& e) { return e.iterations; }));
  file.write(spec("order_digest", "digest of the order of the images"),
             column(epochs, [](auto& e) { return e.order_digest; }));
  write_fields(file, epoch_counts(), epochs);
  write_rank_fields(file, epoch_fields(), epochs);
}

void write_verification(Hdf5Output& file, const std::vector<VerificationRow>& rows) {
  const auto spec = [](const char* name, const char* long_name) {
    return DatasetSpec{std::string("verification/") + name, {kChecks}, "1", long_name};
  };
  const auto flag = [](bool value) { return static_cast<std::uint8_t>(value); };
  file.make_group("verification");
  file.write(spec("mode", "synchronisation mode"), column(rows, [](auto& r) { return r.mode; }));
  file.write(spec("passed", "1 if it agrees with the reference mode"),
             column(rows, [&](auto& r) { return flag(r.passed); }));
  file.write(spec("ranks_equal", "1 if the parameters are the same on all ranks"),
             column(rows, [&](auto& r) { return flag(r.ranks_equal); }));
  file.write(spec("difference", "largest difference to the reference mode"),
             column(rows, [](auto& r) { return r.difference; }));
  file.write(spec("tolerance", "largest difference that passes"),
             column(rows, [](auto& r) { return r.tolerance; }));
  file.write(spec("parameter_hash", "digest of the parameters"),
             column(rows, [](auto& r) { return r.parameter_hash; }));
}

void write_calibration(Hdf5Output& file, std::vector<CalibrationRow> rows) {
  if (rows.empty()) return;
  file.make_group(kCalibrationGroup);
  file.write(calibration_collective_spec(),
             column(rows, [](auto& r) { return std::string(collective_name(r.kind)); }));
  write_fields(file, calibration_texts(), rows);
  file.write(calibration_of_bucket_spec(),
             column(rows, [](auto& r) { return static_cast<std::uint8_t>(r.of_bucket); }));
  write_fields(file, calibration_counts(), rows);
  write_fields(file, calibration_times(), rows);
}

void write_windows(Hdf5Output& file, std::vector<WindowRow> rows) {
  if (rows.empty()) return;
  file.make_group(kWindowGroup);
  file.write(window_kind_spec(), column(rows, [](auto& r) { return r.kind; }));
  write_fields(file, window_counts(), rows);
  write_rank_fields(file, window_times(), rows);
}

void write_clocks(Hdf5Output& file, std::vector<ClockRow> rows) {
  if (rows.empty()) return;
  file.make_group(kClockGroup);
  file.write(clock_when_spec(), column(rows, [](auto& r) { return r.when; }));
  file.write(clock_at_spec(), column(rows, [](auto& r) { return r.at_s; }));
  write_rank_fields(file, clock_fields(), rows);
}

void write_traffic_totals(Hdf5Output& file, std::vector<TrafficRow> rows) {
  if (rows.empty()) return;
  file.make_group(kTrafficTotalGroup);
  file.write(traffic_when_spec(), column(rows, [](auto& r) { return r.when; }));
  file.write(traffic_iterations_spec(), column(rows, [](auto& r) { return r.iterations; }));
  for (const auto& field : traffic_total_fields()) {
    std::vector<std::int64_t> values;
    for (TrafficRow& row : rows)
      for (std::size_t category = 0; category < kTrafficCategories; ++category)
        for (RankTraffic& rank : row.ranks)
          values.push_back(field.of(rank)[category]);
    file.write(field.spec, values);
  }
}

void write_replicas(Hdf5Output& file, std::vector<ReplicaRow> rows) {
  if (rows.empty()) return;
  file.make_group(kReplicaGroup);
  write_fields(file, replica_texts(), rows.back().ranks);
  write_fields(file, replica_numbers(), rows.back().ranks);
}

void write_resumes(Hdf5Output& file, std::vector<ResumeRow> rows) {
  if (rows.empty()) return;
  file.make_group(kResumeGroup);
  write_fields(file, resume_counts(), rows);
  write_fields(file, resume_texts(), rows);
}

void write_device_samples(Hdf5Output& file, std::vector<DeviceSample> samples) {
  if (samples.empty()) return;
  file.make_group(kDeviceGroup);
  write_fields(file, device_counts(), samples);
  write_fields(file, device_numbers(), samples);
}

/// A data set that grows block by block: its handle and how a block of rows becomes its numbers.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void write(Hdf5Output& file, std::size_t first, Rows& rows) = 0;
  virtual void close(Hdf5Output& file) = 0;
};

template <typename Number>
class NumberStream : public Stream {
 public:
  using Fill = std::function<void(IterationRow&, std::vector<Number>&)>;
  NumberStream(Hdf5Output& file, DatasetSpec spec, Fill fill)
      : spec_(std::move(spec)),
        fill_(std::move(fill)),
        dataset_(file.make_dataset<Number>(spec_)) {}

  void write(Hdf5Output& file, std::size_t first, Rows& rows) override {
    values_.clear();
    for (IterationRow& row : rows)
      fill_(row, values_);
    file.write_rows<Number>(dataset_, spec_, first, values_);
    sum_ = crc32c(std::as_bytes(std::span(values_)), sum_);
  }
  void close(Hdf5Output& file) override { file.close(dataset_, spec_.path, sum_); }

 private:
  DatasetSpec spec_;
  Fill fill_;
  H5Object dataset_;
  std::vector<Number> values_;
  std::uint32_t sum_ = 0;
};

using Streams = std::vector<std::unique_ptr<Stream>>;

template <typename Number, typename Fill>
void add(Streams& streams, Hdf5Output& file, const DatasetSpec& spec, Fill fill) {
  streams.push_back(std::make_unique<NumberStream<Number>>(file, spec, std::move(fill)));
}

void add_iteration_streams(Streams& streams, Hdf5Output& file) {
  file.make_group("iteration");
  for (const auto& field : iteration_fields())
    add<std::int64_t>(streams, file, field.spec,
                      [&field](auto& row, auto& values) { values.push_back(field.of(row)); });
  add<double>(streams, file, learning_rate_spec(),
              [](auto& row, auto& values) { values.push_back(row.learning_rate); });
  add<std::uint8_t>(streams, file, warmup_spec(), [](auto& row, auto& values) {
    values.push_back(static_cast<std::uint8_t>(row.warmup));
  });
}

template <typename Number, typename Fields>
void add_rank_streams(Streams& streams, Hdf5Output& file, const Fields& fields) {
  for (const auto& field : fields)
    add<Number>(streams, file, field.spec, [&field](auto& row, auto& values) {
      for (RankIteration& rank : row.ranks)
        values.push_back(field.of(rank));
    });
}

void add_bucket_streams(Streams& streams, Hdf5Output& file, std::size_t buckets) {
  file.make_group("bucket");
  add<std::int64_t>(streams, file, bucket_bytes_spec(), [buckets](auto& row, auto& values) {
    for (std::size_t b = 0; b < buckets; ++b)
      values.push_back(b < row.buckets.size() ? row.buckets[b].bytes : 0);
  });
  add<std::uint8_t>(streams, file, bucket_kind_spec(), [buckets](auto& row, auto& values) {
    for (std::size_t b = 0; b < buckets; ++b)
      values.push_back(b < row.buckets.size() ? static_cast<std::uint8_t>(row.buckets[b].kind)
                                              : kNoCollective);
  });
  for (const auto& field : bucket_fields())
    add<double>(streams, file, field.spec, [&field, buckets](auto& row, auto& values) {
      for (std::size_t b = 0; b < buckets; ++b)
        for (RankIteration& rank : row.ranks)
          values.push_back(b < rank.buckets.size() ? field.of(rank.buckets[b]) : kNotMeasured);
    });
}

void write_iterations(Hdf5Output& file, RunReader& run) {
  const std::size_t buckets = run.index().buckets;
  Streams streams;
  add_iteration_streams(streams, file);
  file.make_group("time");
  add_rank_streams<double>(streams, file, rank_fields());
  file.make_group("traffic");
  add_rank_streams<std::int64_t>(streams, file, rank_counts());
  add_bucket_streams(streams, file, buckets);
  const std::size_t block = rows_per_block(run.ranks(), buckets);
  for (std::size_t first = 0; first < run.iterations(); first += block) {
    Rows rows = run.rows(first, std::min(block, run.iterations() - first));
    for (const auto& stream : streams)
      stream->write(file, first, rows);
  }
  for (const auto& stream : streams)
    stream->close(file);
}

/// Files without histograms have no numbers on their axes either.
hsize_t histogram_length(const RunReader& run, std::size_t length) {
  return run.quantization().empty() ? 0 : length;
}

void write_content(Hdf5Output& file, RunReader& run) {
  write_header(file, run);
  write_config(file, run.info());
  write_topology(file, run.info().topology);
  write_iterations(file, run);
  write_epochs(file, run.epochs());
  write_verification(file, run.verification());
  write_calibration(file, run.calibration());
  write_windows(file, run.windows());
  write_clocks(file, run.clocks());
  write_traffic_totals(file, run.traffic_totals());
  write_replicas(file, run.replicas());
  write_resumes(file, run.resumes());
  write_device_samples(file, run.device_samples());
  write_quantization(file, run.quantization());
  file.set_attribute("valid_rows", static_cast<std::int64_t>(run.iterations()));
}

}  // namespace

void write_hdf5(RunReader& run, const std::filesystem::path& path) {
  Hdf5Output file(
      path, {run.iterations(), run.ranks(), run.index().buckets, run.epochs().size(),
             run.verification().size(), run.calibration().size(), run.windows().size(),
             run.clocks().size(), run.resumes().size(), run.device_samples().size(),
             run.traffic_totals().size(), kTrafficCategories, run.quantization().tensors.size(),
             run.quantization().steps.size(), run.quantization().speeds.size(),
             histogram_length(run, kHistogramBins), histogram_length(run, kHistogramLevels)});
  try {
    write_content(file, run);
    file.close();
  } catch (const Error& error) {
    // HDF5 knows which object it was, not which file.
    if (error.code() != ExitCode::kInputOutput) throw;
    throw Error(error.code(), fmt::format("cannot write '{}': {}", path.string(), error.what()),
                "make room on that disk; the journal is kept and gradsync-report reads it");
  }
}

}  // namespace gradsync
