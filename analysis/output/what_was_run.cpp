#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/output/page_parts.h"
#include "analysis/plots/html.h"
#include "analysis/plots/run_marks.h"
#include "base/parse.h"

namespace gradsync::report {

namespace {

constexpr std::size_t kMostValues = 6;

using Texts = std::set<std::string>;
using TextsOf = std::function<void(const Run&, Texts&)>;

std::string provenance(const Run& run, std::string_view name) {
  for (const NamedText& entry : run.reader->info().provenance)
    if (entry.name == name) return entry.value.substr(0, entry.value.find_last_not_of(" \n") + 1);
  return "";
}

Texts all_of(const RunSet& set, const TextsOf& texts_of) {
  Texts texts;
  for (const Run* run : all_runs(set))
    texts_of(*run, texts);
  texts.erase("");
  return texts;
}

std::string joined(const Texts& texts) {
  std::string text;
  std::size_t count = 0;
  for (const std::string& one : texts) {
    if (++count > kMostValues)
      return text + fmt::format("; and {} more", texts.size() - kMostValues);
    text += (text.empty() ? "" : "; ") + one;
  }
  return text;
}

std::string line(const RunSet& set, const std::string& name, const TextsOf& texts_of) {
  const Texts texts = all_of(set, texts_of);
  if (texts.empty()) return "";
  return fmt::format("<dt>{}</dt><dd{}>{}</dd>\n", html_text(name),
                     texts.size() > 1 ? " class=\"differs\"" : "", html_text(joined(texts)));
}

TextsOf option(const char* name) {
  return [name](const Run& run, Texts& texts) { texts.insert(run.reader->option(name)); };
}

TextsOf recorded(const char* name) {
  return [name](const Run& run, Texts& texts) { texts.insert(provenance(run, name)); };
}

TextsOf places(std::string RankPlace::*field) {
  return [field](const Run& run, Texts& texts) {
    for (const RankPlace& place : run.reader->info().topology)
      texts.insert(place.*field);
  };
}

std::string facts(const RunSet& set, bool with_hosts) {
  std::string text = "<dl class=\"facts\">\n";
  if (with_hosts)
    text += line(set, "Hosts", places(&RankPlace::host));
  else
    text +=
        fmt::format("<dt>Hosts</dt><dd>{}</dd>\n", all_of(set, places(&RankPlace::host)).size());
  text += line(set, "Devices", places(&RankPlace::device));
  text += line(set, "Threads per rank", [](const Run& run, Texts& texts) {
    for (const RankPlace& place : run.reader->info().topology)
      if (place.threads > 0) texts.insert(std::to_string(place.threads));
  });
  text += line(set, "Model", [](const Run& run, Texts& texts) { texts.insert(run.model); });
  text += line(set, "Data", recorded("data_name"));
  text += line(set, "Precision", option("precision"));
  for (const auto& [name, key] :
       std::initializer_list<std::pair<const char*, const char*>>{{"Program", "program"},
                                                                  {"Compiler", "compiler"},
                                                                  {"LibTorch", "libtorch"},
                                                                  {"MPI", "mpi"},
                                                                  {"NCCL", "nccl"},
                                                                  {"CUDA", "cuda"},
                                                                  {"HDF5", "hdf5"}})
    text += line(set, name, recorded(key));
  return text +
         "</dl>\n<p class=\"fine\">Where a line names several values, the runs differ in "
         "it.</p>\n";
}

std::string run_row(const Run& run) {
  const std::string batch = run.batch_per_rank > 0 ? std::to_string(run.batch_per_rank) : "n/a";
  return fmt::format(
      "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td class=\"n\">{}</td>"
      "<td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td><td>{}</td><td><code>{}</code></td>"
      "</tr>\n",
      html_text(run.name), html_text(run.model), html_text(run.mode), run.ranks, batch,
      run.reader->iterations(), html_text(run.status()), html_text(run.reader->info().created),
      html_text(run.path.string()));
}

std::string run_list(const RunSet& set) {
  const auto runs = all_runs(set);
  std::string text = fmt::format(
      "<details><summary>The {}</summary>\n<div class=\"scroll\" tabindex=\"0\" "
      "role=\"region\" aria-label=\"List of runs\"><table>\n<thead><tr><th scope=\"col\">run</th>"
      "<th scope=\"col\">model</th><th scope=\"col\">mode</th><th scope=\"col\" class=\"n\">ranks"
      "</th><th scope=\"col\" class=\"n\">batch/rank</th><th scope=\"col\" class=\"n\">iterations"
      "</th><th scope=\"col\">status</th><th scope=\"col\">begun (UTC)</th><th scope=\"col\">file"
      "</th></tr></thead>\n<tbody>\n",
      count_text(runs.size(), "run"));
  for (const Run* run : runs)
    text += run_row(*run);
  return text + "</tbody></table></div></details>\n";
}

/// "4 ranks" or "1 to 4 ranks".
std::string ranks_span(const RunSet& set) {
  const auto runs = all_runs(set);
  const auto [least, most] = std::minmax_element(
      runs.begin(), runs.end(), [](const Run* a, const Run* b) { return a->ranks < b->ranks; });
  if ((*least)->ranks == (*most)->ranks) return count_text((*most)->ranks, "rank");
  return fmt::format("{} to {} ranks", (*least)->ranks, (*most)->ranks);
}

}  // namespace

std::string study_title(const RunSet& set) {
  const Texts models = all_of(set, [](const Run& run, Texts& texts) { texts.insert(run.model); });
  const Texts modes = all_of(set, [](const Run& run, Texts& texts) { texts.insert(run.mode); });
  const std::string what =
      modes.size() == 1 ? *modes.begin() : fmt::format("{} modes", modes.size());
  return fmt::format("{}: {} on {}", fmt::join(models, ", "), what, ranks_span(set));
}

std::string what_was_run(const RunSet& set, bool with_hosts) {
  return facts(set, with_hosts) + run_list(set);
}

}  // namespace gradsync::report
