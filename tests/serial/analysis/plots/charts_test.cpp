// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <set>

#include <doctest/doctest.h>

#include "analysis/plots/plots.h"
#include "analysis/plots/run_marks.h"
#include "analysis/plots/svg.h"
#include "analysis/tables/tables.h"
#include "options/modes.h"
#include "serial/expect_error.h"
#include "serial/report_view.h"
#include "serial/study_run.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::testing;

namespace {

/// A run whose iterations all take the same time.
void write_even(const RunFolder::File& path, const SampleShape& shape, double iteration_s,
                const RunInfo& info) {
  auto&& recorder = recorder_of(path, info);
  for (std::size_t i = 0; i < shape.iterations; ++i) {
    IterationRow row = sample_row(shape, i);
    for (RankIteration& rank : row.ranks) {
      rank[Phase::kIteration] = iteration_s;
      rank[Phase::kOther] = iteration_s - 0.007;
    }
    recorder.add(row);
  }
  recorder.finish(RunStatus::kComplete);
}
void write_even(const RunFolder::File& path, const SampleShape& shape, double iteration_s) {
  write_even(path, shape, iteration_s, sample_info(shape));
}

Chart chart_of_points(std::vector<ChartPoint> points, Mark mark = Mark::kLinePoints) {
  return {"title",
          {"One.", "Two."},
          {"x", "x axis", "", 0, false},
          {"y_ms", "y in ms", "ms", 0, true},
          {{"panel", "", {{"line", mark, "#0072b2", 1, 2, std::move(points), {{"mode", "ddp"}}}}}}};
}

const ChartSeries& series_named(const ChartPanel& panel, const std::string& label) {
  for (const ChartSeries& series : panel.series)
    if (series.label == label) return series;
  FAIL("no series " << label);
  return panel.series.front();
}

}  // namespace

TEST_CASE("chart: texts of files are harmless in a page") {
  CHECK(html_text("a<b>&\"'\n") == "a&lt;b&gt;&amp;&quot;&#39; ");
  CHECK(html_text("Z\xC3\xBCrich") == "Z\xC3\xBCrich");
  CHECK(html_text("\xF0\x9F\x98\x80") == "\xF0\x9F\x98\x80");
  // A byte that continues nothing, a cut character, an overlong '/', a surrogate.
  CHECK(html_text("\x80") == "\xEF\xBF\xBD");
  CHECK(html_text("\xE2\x82") == "\xEF\xBF\xBD\xEF\xBF\xBD");
  CHECK(html_text("\xC0\xAF") == "\xEF\xBF\xBD\xEF\xBF\xBD");
  CHECK(html_text("\xED\xA0\x80") == "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  CHECK(id_text("a b\"<_-9") == "a-b--_-9");
}

TEST_CASE("chart: round numbers on axes") {
  const auto texts = [](const ChartAxis& axis, const ChartRange& range) {
    std::string text;
    for (const ChartTick& tick : round_ticks(axis, range, 5))
      text += tick.text + " ";
    return text;
  };
  const ChartAxis linear{"x", "", "", 0, false}, binary{"x", "", "", 2, false};
  CHECK(texts(linear, {0, 10}) == "0 2 4 6 8 10 ");
  CHECK(texts(linear, {0.02, 0.11}) == "0.02 0.04 0.06 0.08 0.10 ");
  CHECK(texts(linear, {-1, 1}) == "-1.0 -0.5 0.0 0.5 1.0 ");
  CHECK(texts(binary, {0.7, 5.6}) == "1 2 4 ");
  CHECK(texts({"x", "", "", 10, false}, {0.5, 2000}) == "1 10 100 1000 ");
}

TEST_CASE("chart: an axis of values that differ by rounding alone has room for its ticks") {
  const Chart chart = chart_of_points({{1, 10}, {std::nextafter(1.0, 2.0), 10}});
  const ChartRange x = x_range(chart, chart.panels[0]);
  CHECK(x.to - x.from >= 1);
}

TEST_CASE("chart: steps and points are all drawn, of a smooth line some with the last one") {
  const auto count = [](const std::vector<ChartPoint>& points, Mark mark, const char* what) {
    const Chart chart = chart_of_points(points, mark);
    const std::string svg = svg_panel(chart, chart.panels[0], "p");
    const std::string path =
        svg.substr(svg.find(mark == Mark::kLine ? "class=\"line\"" : "class=\"faint\""));
    const auto begin = path.find(" d=\"") + 4;
    return count_of(path.substr(begin, path.find('"', begin) - begin), what);
  };
  std::vector<ChartPoint> outline = {{0, 0}}, smooth;
  for (int level = 0; level < 256; ++level)
    for (const int x : {level, level + 1})
      outline.push_back({static_cast<double>(x), static_cast<double>(1 + level % 2)});
  outline.push_back({256, 0});
  CHECK(count(outline, Mark::kLine, "L") == 513);
  for (int x = 0; x < 1000; ++x)
    smooth.push_back({static_cast<double>(x), 1});
  CHECK(count(smooth, Mark::kLine, "L") == 250);  // every fourth, and the last one
  CHECK(count(smooth, Mark::kPoints, "h0") == 1000);
}

TEST_CASE("chart: an axis holds every interval, and nothing that was not measured") {
  Chart chart = chart_of_points({{1, 10, 8, 14}, {2, kNotMeasured}, {3, 5}});
  const ChartRange y = y_range(chart, chart.panels[0]);
  CHECK(y.from == 0);
  CHECK(y.to >= 14);
  CHECK(y.to < 16);
  chart.panels[0].y_top = 12;
  CHECK(y_range(chart, chart.panels[0]).to == 12);
  chart.x.log = 2;
  chart.panels[0].series[0].points = {{-1, 1}, {0, 1}, {4, 1}, {16, 1}};
  CHECK(x_range(chart, chart.panels[0]).from == doctest::Approx(4 / std::sqrt(2)));
  CHECK(x_range(chart, chart.panels[0]).to == doctest::Approx(16 * std::sqrt(2)));
  chart.panels[0].series[0].points.clear();
  CHECK(x_range(chart, chart.panels[0]).from < x_range(chart, chart.panels[0]).to);
}

TEST_CASE("chart: panels share the y axis, unless one would be too small to read") {
  Chart chart = chart_of_points({{1, 10}});
  chart.panels.push_back(chart_of_points({{1, 50}}).panels[0]);
  CHECK(y_range(chart, chart.panels[0]).to == y_range(chart, chart.panels[1]).to);
  chart.panels[1].series[0].points = {{1, 5000}};
  CHECK(y_range(chart, chart.panels[0]).to < 20);
  CHECK(y_range(chart, chart.panels[1]).to > 5000);
}

TEST_CASE("chart: a figure holds all panels, one legend if they have the same, and the caption") {
  Chart chart = chart_of_points({{1, 10, 8, 14}, {3, 5}});
  chart.panels[0].series[0].label = "<script>";
  chart.panels.push_back(chart.panels[0]);
  chart.panels[1].subtitle = "2 more not shown";
  const std::string one = svg_figure(chart);
  CHECK(one.starts_with("<svg xmlns="));
  CHECK(count_of(one, "class=\"chart\"") == 2);
  CHECK(count_of(one, ">&lt;script&gt;</text>") == 1);
  CHECK(contains(one, "One. Two.</text>"));
  CHECK(contains(one, "2 more not shown</text>"));
  CHECK_FALSE(contains(one, "<script"));
  chart.panels[1].series[0].color = "#ffffff";
  CHECK(count_of(svg_figure(chart), ">&lt;script&gt;</text>") == 2);
}

TEST_CASE("chart: names too long for an axis stand below it, by number") {
  Chart chart = chart_of_points({{1, 10}, {2, 20}});
  ChartPanel& panel = chart.panels[0];
  panel.slanted = true;
  panel.x_ticks = {{1, "ddp"}, {2, "ddp, batch 64"}};
  CHECK(contains(svg_figure(chart), ">ddp, batch 64</text>"));
  CHECK_FALSE(contains(svg_figure(chart), ">1: ddp</text>"));
  panel.x_ticks[1].text = "ddp, batch 64, lr-schedule=cosine, warmup-epochs=5";
  const std::string text = svg_figure(chart);
  CHECK(contains(text, ">2</text>"));
  CHECK(contains(text, ">1: ddp</text>"));
  CHECK(contains(text, ">2: ddp, batch 64, lr-schedule=cosine, warmup-epochs=5</text>"));
  CHECK(contains(svg_legend(panel, "id"), "<li>1: ddp</li>"));
}

TEST_CASE("chart: slanted names and subtitles are inside the figure") {
  Chart chart = chart_of_points({{1, 10}, {20, 20}});
  ChartPanel& panel = chart.panels[0];
  const double usual = svg_size(chart, panel).width;
  panel.slanted = true;
  panel.x_ticks = {{1, std::string(30, 'm')}, {20, "b"}};
  CHECK(svg_size(chart, panel).width > usual + 20);
  std::string words;
  for (int i = 0; i < 40; ++i)
    words += "word ";
  panel.subtitle = words + "end";
  CHECK(contains(svg_figure(chart), " end</text>"));
  CHECK_FALSE(contains(svg_figure(chart), words));
}

TEST_CASE("chart: a panel whose axis is cut has its own") {
  Chart chart = chart_of_points({{1, 10}});
  chart.panels.push_back(chart_of_points({{1, 50}}).panels[0]);
  chart.panels[0].y_top = 8;
  CHECK(y_range(chart, chart.panels[0]).to == 8);
  CHECK(y_range(chart, chart.panels[1]).to > 50);
  Chart loss = chart_of_points({{1, 2}, {2, 1}, {3, 400}});
  loss.y.from_zero = false;
  loss.panels[0].y_top = 2.5;
  CHECK(y_range(loss, loss.panels[0]).from == doctest::Approx(1 - 0.04 * 1.5));
}

TEST_CASE("chart: a figure is as wide as its title and the labels of its legend") {
  const auto width_of = [](const Chart& chart) {
    return std::stod(svg_figure(chart).substr(
        std::string("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"").size()));
  };
  Chart chart = chart_of_points({{0, 1}, {1, 2}});
  const double narrow = width_of(chart);
  chart.panels[0].series[0].label = std::string(100, 'm');
  CHECK(width_of(chart) > narrow);
  CHECK(width_of(chart) > 100 * 6);
  chart.panels[0].series[0].label = "line";
  CHECK(width_of(chart) == narrow);
  chart.title = std::string(100, 'm');
  CHECK(width_of(chart) > 100 * 8);
}

TEST_CASE("chart: the CSV is tidy, what is not there is empty") {
  const Chart chart = chart_of_points({{1, 10, 8, 14, "a,b"}, {2, kNotMeasured}});
  CHECK(chart_csv(chart) ==
        "panel,series,x,y_ms,y_ms_low,y_ms_high,mark,panel_title,label,name,mode\n"
        "1,1,1,10,8,14,line-points,panel,line,\"a,b\",ddp\n"
        "1,1,2,,,,line-points,panel,line,,ddp\n");
  CHECK(caption_text(chart) == "One. Two.");
}

TEST_CASE("chart: inline SVG tells values, and breaks lines where nothing was measured") {
  Chart chart = chart_of_points({{1, 10, 8, 14}, {2, kNotMeasured}, {3, 5}});
  chart.panels[0].series[0].label = "<script>";
  const std::string svg = svg_panel(chart, chart.panels[0], "p1");
  CHECK(contains(svg, "<title>x 1, &lt;script&gt;: 10 ms (8 to 14)</title>"));
  CHECK(contains(svg, "<title>x 3, &lt;script&gt;: 5 ms</title>"));
  CHECK(count_of(svg, "<circle") == 2);
  CHECK_FALSE(contains(svg, "<script"));
  CHECK_FALSE(contains(svg, "nan"));
  CHECK(contains(svg, "id=\"p1-clip\""));
  const auto line = svg.substr(svg.find("class=\"line\""));
  CHECK(count_of(line.substr(0, line.find("</path>")), "M") == 2);
  CHECK(contains(svg_legend(chart.panels[0], "p1"), "&lt;script&gt;</li>"));
}

TEST_CASE("chart: modes differ in the shape of their markers and in dashes, not in color alone") {
  Chart chart = chart_of_points({{1, 10}, {2, 20}});
  ChartPanel& panel = chart.panels[0];
  std::set<std::string> shapes;
  std::set<int> dashes;
  ModeDashes dash_of;
  panel.series.clear();
  for (const Mode& mode : kModes) {
    const std::string color(mode.color);
    ChartSeries series{std::string(mode.name), Mark::kLinePoints, color, 1, 2, {{1, 10}}, {}};
    const std::string sample = svg_sample(series, "id");
    const auto at = sample.rfind("class=\"dot\"");
    REQUIRE(at != std::string::npos);
    shapes.insert(sample.substr(at, sample.find("/>", at) - at));
    dashes.insert(dash_of.next(std::string(mode.name)));
  }
  CHECK(shapes.size() == std::size(kModes));
  CHECK(dashes.size() == std::size(kModes));
  CHECK(dash_of.next("ddp") != dash_of.next("ddp"));
}

TEST_CASE("chart: markers at one place stand side by side, and lines on each other are named") {
  Chart chart = chart_of_points({{1, 10, 8, 12}, {2, 20}});
  ChartPanel& panel = chart.panels[0];
  const auto places = [&] {
    std::vector<std::string> xs;
    const std::string svg = svg_panel(chart, panel, "p");
    for (std::size_t at = 0; (at = svg.find("cx=\"", at)) != std::string::npos; ++at)
      xs.push_back(svg.substr(at + 4, svg.find('"', at + 4) - at - 4));
    return xs;
  };
  const auto alone = places();
  panel.series.push_back(panel.series[0]);
  panel.series[1].points = {{1, 90}, {2, 95}};
  const auto apart = places();
  REQUIRE(apart.size() == 4);
  CHECK(apart[0] == apart[2]);
  panel.series[1].points = {{1, 11}, {2, 95}};
  const auto beside = places();
  CHECK(std::stod(beside[2]) - std::stod(beside[0]) == doctest::Approx(7));
  CHECK(coinciding_lines(chart).empty());
  for (ChartSeries& series : panel.series) {
    series.mark = Mark::kLine;
    series.points = {{1, 10}, {2, kNotMeasured}, {3, 20}};
  }
  panel.series[1].label = "other";
  CHECK(coinciding_lines(chart) == std::vector<std::string>{"panel: line and other coincide."});
  panel.series[1].points[2].y = 21;
  CHECK(coinciding_lines(chart).empty());
}

TEST_CASE("chart: split stacks compute, exposed, other, and hidden inside compute") {
  const RunFolder folder;
  write_even(folder / "run.h5", {"ddp", 2}, 0.010);
  const auto chart = make_split_plot(loaded(folder));
  REQUIRE(chart);
  REQUIRE(chart->panels.size() == 1);
  const auto ends = [&](const std::string& label) {
    const ChartPoint& point = series_named(chart->panels[0], label).points.at(0);
    return std::array<double, 2>{point.low, point.high};
  };
  const auto is = [](const std::array<double, 2>& pair, double low, double high) {
    CHECK(pair[0] == doctest::Approx(low));
    CHECK(pair[1] == doctest::Approx(high));
  };
  is(ends("compute"), 0, 6);
  is(ends("hidden communication (overlapped)"), 4, 6);
  is(ends("exposed communication"), 6, 7);
  is(ends("other"), 7, 10);
  is(ends("5 % to 95 % of the iterations"), 10, 10);
  CHECK(contains(caption_text(*chart), "n = 10 steady iterations"));
}

TEST_CASE("chart: split counts the iterations of each repeat") {
  const RunFolder folder;
  write_even(folder / "long.h5", {"ddp", 2}, 0.010);
  write_even(folder / "short.h5", {"ddp", 2, 8}, 0.010);
  const auto chart = make_split_plot(loaded(folder));
  REQUIRE(chart);
  CHECK(contains(caption_text(*chart), "n = 6 to 10 steady iterations"));
}

TEST_CASE("chart: speedup, strong by global batch and weak by batch per rank") {
  const RunFolder folder;
  write_even(folder / "none32.h5", {"none", 1, 12, 5, 32}, 0.008);
  write_even(folder / "none64.h5", {"none", 1, 12, 5, 64}, 0.015);
  write_even(folder / "ddp.h5", {"ddp", 2, 12, 5, 32}, 0.010);
  write_even(folder / "alone.h5", {"ddp", 4, 12, 5, 999}, 0.010);
  const auto chart = make_speedup_plot(loaded(folder));
  REQUIRE(chart);
  REQUIRE(chart->panels.size() == 2);
  const ChartPoint strong = series_named(chart->panels[0], "ddp").points.back();
  CHECK(strong.x == 2);
  CHECK(strong.y == doctest::Approx(1.5));  // 15 ms / 10 ms, both with a global batch of 64
  CHECK(std::isnan(strong.low));            // one start each
  const ChartPoint weak = series_named(chart->panels[1], "ddp").points.back();
  CHECK(weak.y == doctest::Approx(1.6));  // 2 x 8 ms / 10 ms, both with 32 per rank
  CHECK(series_named(chart->panels[0], "ideal").points.back().y == 2);
  CHECK(contains(caption_text(*chart),
                 "Not shown, for lack of a run of one rank with the same batch"));
}

TEST_CASE("chart: speedup has the bases of table speedup, and names what else differs") {
  const RunFolder folder;
  const SampleShape one{"none", 1, 12, 5, 32};
  const auto write_with = [&](const std::string& name, const SampleShape& shape, double time_s,
                              const std::string& layout) {
    RunInfo info = sample_info(shape);
    info.config.push_back({"layout", layout, "command line"});
    write_even(folder / name, shape, time_s, info);
  };
  write_with("a.h5", one, 0.008, "nchw");
  write_with("ddp.h5", {"ddp", 2, 12, 5, 32}, 0.010, "nhwc");
  const auto other_layout = make_speedup_plot(loaded(folder));
  REQUIRE(other_layout);
  CHECK(series_named(other_layout->panels[0], "ddp").points.back().y == doctest::Approx(1.6));
  CHECK(contains(caption_text(*other_layout), "layout nchw in the base, nhwc here"));
  write_with("b.h5", one, 0.012, "nhwc");
  const auto chart = make_speedup_plot(loaded(folder));
  REQUIRE(chart);
  CHECK(series_named(chart->panels[0], "ddp").points.back().y == doctest::Approx(2.4));
  CHECK_FALSE(contains(caption_text(*chart), "differ"));
}

TEST_CASE("chart: a cell that is shown for one kind of scaling is not said to be missing") {
  const RunFolder folder;
  write_even(folder / "none.h5", {"none", 1, 12, 5, 32}, 0.008);
  write_even(folder / "two.h5", {"ddp", 2, 12, 5, 32}, 0.010);
  write_even(folder / "four.h5", {"ddp", 4, 12, 5, 32}, 0.010);
  const auto chart = make_speedup_plot(loaded(folder));
  REQUIRE(chart);
  CHECK_FALSE(contains(caption_text(*chart), "Not shown"));
}

TEST_CASE("chart: epoch time of whole epochs, the first apart") {
  const RunFolder folder;
  write_sample(folder / "run.h5", {"ddp", 2, 15, 5});
  const auto chart = make_epoch_time_plot(loaded(folder));
  REQUIRE(chart);
  const ChartPoint point = series_named(chart->panels[0], "ddp").points.at(0);
  CHECK(point.x == 32);
  CHECK(point.y == doctest::Approx(0.05));
  CHECK(contains(caption_text(*chart), "n = 2 whole epochs"));
}

TEST_CASE("chart: no epoch time of a run that was cut off in its first epoch") {
  const RunFolder folder;
  write_sample(folder / "run.h5", {"ddp", 2, 5, 5}, RunStatus::kPartial);
  CHECK_FALSE(make_epoch_time_plot(loaded(folder)));
}

namespace {

/// An allreduce of 1 MiB in 1 ms.
CalibrationRow isolated_call(const std::string& transport) {
  CalibrationRow row;
  row.transport = transport;
  row.cadence = "isolated";
  row.bytes = 1 << 20;
  row.median_s = 1e-3;
  return row;
}

}  // namespace

TEST_CASE("chart: busbw only beside a calibration") {
  const RunFolder folder;
  write_sample(folder / "plain.h5", {"allreduce", 2});
  CHECK_FALSE(make_busbw_plot(loaded(folder)));
  const SampleShape shape{"ddp", 2};
  {
    auto&& recorder = recorder_of(folder / "run.h5", sample_info(shape));
    record_sample(recorder, shape);
    CalibrationRow row = isolated_call("mpi");
    recorder.add(row);
    row.median_s = 1e-6;
    row.wrong = 7;  // counts nowhere
    recorder.add(row);
    recorder.finish(RunStatus::kComplete);
  }
  const auto chart = make_busbw_plot(loaded(folder));
  REQUIRE(chart);
  // 2(n - 1)/n = 1 for two ranks: 2^20 B in 1 ms; in training 4096 B in 0.9 ms on the faster rank.
  const auto& calibration = series_named(chart->panels[0], "calibration: mpi, isolated").points;
  REQUIRE(calibration.size() == 1);
  CHECK(calibration[0].y == doctest::Approx(1.048576));
  const auto& training = series_named(chart->panels[0], "training: ddp").points;
  REQUIRE(training.size() == 1);
  CHECK(training[0].x == 4096);
  CHECK(training[0].y == doctest::Approx(4096 / 0.9e-3 / 1e9));
}

TEST_CASE("chart: busbw keeps the settings of a mode apart, and names all runs of a mark") {
  const RunFolder folder;
  const auto record = [&](const std::string& name, std::int64_t batch, const char* overlap) {
    const SampleShape shape{"ddp", 2, 12, 1000, batch};
    RunInfo info = sample_info(shape);
    info.config.push_back({"overlap", overlap, "command line"});
    auto&& recorder = recorder_of(folder / (name + ".h5"), info);
    record_sample(recorder, shape);
    recorder.add(isolated_call("mpi"));
    recorder.finish(RunStatus::kComplete);
  };
  record("a", 32, "backward");
  record("b", 64, "backward");
  record("c", 32, "none");
  const auto chart = make_busbw_plot(loaded(folder));
  REQUIRE(chart);
  CHECK(series_named(chart->panels[0], "training: ddp, overlap=none").keys.back().value == "c");
  const auto& keys = series_named(chart->panels[0], "training: ddp, overlap=backward").keys;
  CHECK(keys[1].value == "32 64");
  CHECK(keys.back().value == "a b");
}

TEST_CASE("chart: busbw has a look for each curve in all panels, and none for one rank") {
  const RunFolder folder;
  const std::map<std::size_t, std::vector<std::string>> calibrated = {
      {1, {"mpi"}}, {2, {"shm"}}, {4, {"mpi", "shm"}}};
  for (const auto& [ranks, transports] : calibrated) {
    const SampleShape shape{"ddp", ranks};
    auto&& recorder = recorder_of(folder / (std::to_string(ranks) + ".h5"), sample_info(shape));
    record_sample(recorder, shape);
    for (const std::string& transport : transports)
      recorder.add(isolated_call(transport));
    recorder.finish(RunStatus::kComplete);
  }
  const RunSet set = loaded(folder);
  const auto chart = make_busbw_plot(set);
  REQUIRE(chart);
  REQUIRE(chart->panels.size() == 2);
  const auto color = [&](std::size_t panel, const std::string& transport) {
    return series_named(chart->panels[panel], "calibration: " + transport + ", isolated").color;
  };
  CHECK(color(0, "shm") == color(1, "shm"));
  CHECK(color(1, "mpi") != color(1, "shm"));
}

TEST_CASE("chart: predictions beside the measured cells") {
  Table table{"prediction", "", {}, {}, {}};
  for (const char* name : {"mode", "model", "ranks", "batch_per_rank", "measured_ms",
                           "predicted_ms", "low_ms", "high_ms", "family"})
    table.columns.push_back({name, name});
  const auto add = [&](double ranks, double batch, double measured, double predicted,
                       double family = 1) {
    table.add({"ddp", "lenet", Cell::count(ranks), Cell::count(batch), Cell::of(measured, 2),
               Cell::of(predicted, 2), Cell::of(predicted - 1, 2), Cell::of(predicted + 1, 2),
               Cell::count(family)});
  };
  add(8, 32, kNotMeasured, 14);
  add(2, 32, 10, 11);
  add(2, 64, kNotMeasured, 20);  // a batch that was never measured is not shown
  add(4, 32, 12, kNotMeasured);
  add(2, 32, 70, 77, 2);  // the same mode with other threads is a line of its own
  const auto chart = prediction_chart(table);
  REQUIRE(chart);
  REQUIRE(chart->panels.size() == 2);
  REQUIRE(chart->panels[0].series.size() == 2);
  const auto& predicted = series_named(chart->panels[0], "predicted, batch 32 per rank").points;
  REQUIRE(predicted.size() == 3);
  CHECK(predicted[0].x == 2);
  CHECK(predicted[0].low == 10);
  CHECK(std::isnan(predicted[1].y));
  CHECK(predicted[2].y == 14);
  const auto& measured = series_named(chart->panels[0], "measured, batch 32 per rank").points;
  REQUIRE(measured.size() == 2);
  CHECK(measured[1].y == 12);

  table.columns[5].name = "guessed_ms";
  CHECK_FALSE(prediction_chart(table));
}

TEST_CASE("chart: predictions are those of the report's table, for the ranks that were asked for") {
  const RunFolder folder;
  const LawWorld world;
  for (const std::size_t ranks : {1U, 2U, 4U})
    write_study(folder / ("n" + std::to_string(ranks) + ".h5"), law_run(world, ranks, 32));
  const RunSet set = loaded(folder);
  const RunStudy runs(set);
  TableOptions options;
  options.predict_ranks = {96};
  const auto largest = [&](const std::vector<Table>& made) {
    const auto chart = make_prediction_plot({runs, made, options});
    REQUIRE(chart);
    return series_named(chart->panels[0], "predicted, batch 32 per rank").points.back().x;
  };
  CHECK(largest({}) == 96);
  TableOptions others;
  others.predict_ranks = {48};
  std::vector<Table> made = {make_prediction_table(runs, others)};
  CHECK(largest(made) == 48);
  // A column that --columns left out.
  made[0].columns[column_of(made[0], "low_ms")].name = "other_ms";
  CHECK(largest(made) == 96);
}

TEST_CASE("model: what it knows of the runs is read once") {
  const RunFolder folder;
  write_study(folder / "n2.h5", law_run(LawWorld(), 2, 32));
  const RunSet set = loaded(folder);
  const RunStudy runs(set);
  const std::vector<StudyCell>* cells = &runs.cells();
  CHECK_FALSE(make_what_if_table(runs, {}).rows.empty());
  CHECK(&runs.cells() == cells);
}

namespace {

/// A contender of an experiment of 8 rounds on 2 ranks: 10 ms without exchange; `more` of each
/// part.
void write_contender_of_cost(const RunFolder::File& path, const std::string& name,
                             const std::string& contenders, const std::string& mode,
                             double exposed_s, double compute_s) {
  RunInfo info = sample_info({mode, 2, 9, 1000, 32, 1});
  info.experiment = {{"id", "e"}, {"contender", name}, {"contenders", contenders}};
  auto&& recorder = recorder_of(path, info);
  for (std::int64_t round = 0; round < 9; ++round) {
    IterationRow row;
    row.iteration = row.round = round;
    row.warmup = round == 0;
    RankIteration rank;
    rank.loss = 1;
    rank[Phase::kIteration] = 0.010 + exposed_s + compute_s;
    rank[Phase::kExposed] = exposed_s;
    rank[Phase::kCompute] = 0.009 + compute_s;
    rank[Phase::kWait] = 0;
    rank[Phase::kOther] = 0.001;
    row.ranks = {rank, rank};
    recorder.add(row);
  }
  recorder.finish(RunStatus::kComplete);
}

}  // namespace

TEST_CASE("plots: cost, its parts on both sides of 0, and the control as a band") {
  const RunFolder folder;
  const std::string all = "none,ddp,none (control)";
  write_contender_of_cost(folder / "a.h5", "none", all, "none", 0, 0);
  write_contender_of_cost(folder / "b.h5", "ddp", all, "ddp", 0.003, -0.001);
  write_contender_of_cost(folder / "c.h5", "none (control)", all, "none", 0, 0.0001);
  const auto chart = make_cost_plot(loaded(folder));
  REQUIRE(chart);
  REQUIRE(chart->panels.size() == 1);
  const ChartPanel& panel = chart->panels[0];
  REQUIRE(panel.x_ticks.size() == 1);
  CHECK(panel.x_ticks[0].text == "ddp");
  const auto ends = [&](const std::string& label) {
    const ChartPoint& point = series_named(panel, label).points.at(0);
    return std::pair(std::round(1e6 * point.low) / 1e6, std::round(1e6 * point.high) / 1e6);
  };
  CHECK(ends("exposed communication") == std::pair(0.0, 30.0));
  CHECK(ends("compute") == std::pair(0.0, -10.0));
  CHECK(ends("iteration, 95 % interval") == std::pair(20.0, 20.0));
  const ChartSeries& band = series_named(panel, "control: differences in the band are noise");
  CHECK(band.mark == Mark::kBand);
  CHECK(band.points.at(0).high == doctest::Approx(1));
  const std::string svg = svg_figure(*chart);
  CHECK(contains(svg, "control: differences"));
  CHECK(contains(svg, "x=\"58.0\" y="));            // the band begins at the axis
  CHECK(count_of(svg, "<path class=\"ax\"") == 2);  // and there is a line at 0
}

TEST_CASE("plots: cost without a contender that exchanges nothing has ratios and no parts") {
  const RunFolder folder;
  write_even(folder / "run.h5", {"ddp", 2}, 0.010);
  CHECK_FALSE(make_cost_plot(loaded(folder)));
  const std::string all = "allreduce,ddp";
  write_contender_of_cost(folder / "a.h5", "allreduce", all, "allreduce", 0, 0);
  write_contender_of_cost(folder / "b.h5", "ddp", all, "ddp", 0.001, 0);
  const auto chart = make_cost_plot(loaded(folder));
  REQUIRE(chart);
  const ChartPanel& panel = chart->panels.at(0);
  CHECK(contains(panel.subtitle, "no contender without exchange, so no parts"));
  REQUIRE(panel.series.size() == 1);
  CHECK(panel.series[0].mark == Mark::kMarkers);
  CHECK(panel.series[0].points.at(0).y == doctest::Approx(10));
  CHECK(contains(panel.subtitle, "base: allreduce, 10 ms; n = 8 rounds"));
}
