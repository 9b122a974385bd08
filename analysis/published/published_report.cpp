#include "analysis/published/published_report.h"

#include <algorithm>

#include <fmt/format.h>

#include "analysis/output/output.h"
#include "analysis/output/page_parts.h"
#include "analysis/plots/html.h"
#include "analysis/published/audit_page.h"
#include "base/file.h"

namespace gradsync::report::published {

namespace {

using A = AuditOptions;
using O = PublishedOptions;
using Value = BoundValue<O>;

constexpr std::int64_t kMostCount = 1'000'000'000'000;

/// The tables name the file as the report shows it; where a number is from is said with its folder.
void name_file(const std::string& name, const std::string& path, Table& table) {
  for (std::string& source : table.sources)
    if (source.starts_with(name)) source.replace(0, name.size(), path);
}

/// Whether the audit's page says what the table says.
bool is_on_page(const Table& table) {
  const auto& specs = published_tables();
  return std::any_of(specs.begin(), specs.end(), [&](const PublishedTableSpec& spec) {
    return spec.on_page && table.name == "published-" + spec.name;
  });
}

BoundGroup<O> what_options() {
  const auto audit = [](double A::*number) { return part_of(&O::audit, number); };
  return {"What",
          {
              names_option<O>("table", names_of(published_tables()), "all",
                              "tables to make; several as a list with commas",
                              [](const OptionValues& values, const std::string& name, O& options) {
                                options.tables = chosen(values, name, published_tables());
                              }),
              {"images", Value::integer<double>(audit(&A::images), 1, kMostCount),
               "images of one epoch"},
              {"parameters", Value::integer<double>(audit(&A::parameters), 0, kMostCount),
               "parameters of the models, 4 bytes each; 0: by the models' names"},
              {"message-bytes", Value::size<double>(audit(&A::message_bytes), 0, kMostCount),
               "bytes of one gradient; counts before --parameters"},
              {"batch", Value::integer(&O::batch_per_device, 0, kMostCount),
               "batch per device where FILE gives none"},
              {"fastest-link",
               Value::size<double>(audit(&A::fastest_link_bytes_per_s), 1, 1000 * kMostCount),
               "the most bytes per second that one device can send; more is called impossible"},
              {"list", Value::on_off(&O::list), "list the tables and formats, and end"},
          }};
}

ProgramOptions<O> all_options() {
  using Path = std::filesystem::path;
  const BoundGroup<OutputOptions> output = output_options(
      "folder for <table>.<format>; text goes to standard output as well. Without it all formats "
      "go there");
  return {"audit",
          {what_options(),
           of_part(&O::output, output),
           {"Where to",
            {{"html", Value::text_value<Path>(&O::html, "FILE"),
              "one page with all of it, for a browser; needs no network"}}},
           of_part(&O::claims, claim_options())}};
}

}  // namespace

OptionTable published_option_table() {
  return all_options().table();
}

PublishedOptions published_options(const OptionValues& values) {
  return all_options().read(values);
}

PublishedReport read_published(const PublishedOptions& options) {
  const std::string text = read_text_file(options.file);
  PublishedReport report{
      Study(parse_published(text, options.file.filename().string(),
                            options.batch_per_device > 0 ? options.batch_per_device : kNotSaid)),
      {},
      {},
      false};
  report.audit = audit(report.study, options.audit);
  for (const PublishedTableSpec* spec : options.tables) {
    if (spec->make)
      report.tables.push_back(spec->make(report.study, report.audit));
    else
      report.page = true;
  }
  for (Table& table : report.tables)
    name_file(report.study.file().name, options.file.string(), table);
  return report;
}

std::vector<Table> tables_of_claims(const OptionValues& values,
                                    const std::vector<ClaimedFile>& files) {
  PublishedOptions options = published_options(values);
  if (files.size() != 1)
    throw Error(ExitCode::kBadData,
                fmt::format("the claims are of {} files, and one is audited", files.size()),
                "give a file that gradsync-audit --claims wrote");
  options.file = files[0].path;
  return read_published(options).tables;
}

void write_published(const PublishedReport& report, ReportOutput& output) {
  if (report.page) {
    const Page page = audit_page(report.study, report.audit);
    output.write_page("audit", page_text(page), page_markdown(page));
  }
  for (const Table& table : report.tables)
    output.write(table, true, report.page && is_on_page(table));
}

std::string published_html(const PublishedReport& report) {
  const Page page = audit_page(report.study, report.audit);
  std::vector<Table> tables;
  std::string all_tables;
  Document document;
  document.title = page.front().text;
  document.kicker = "What published numbers hold";
  document.when = fmt::format("{} numbers of {} reports", report.study.rows().size(),
                              report.study.reports().size());
  document.links = {{"audit", "What was found"}};
  for (const std::string& name : report.study.reports())
    document.links.emplace_back(report_anchor(name), name);
  for (const Table& table : report.tables) {
    if (is_on_page(table)) continue;
    document.links.emplace_back("table-" + id_text(table.name), table.title);
    all_tables += page_table(table, all_tables.empty());
    tables.push_back(table);
  }
  document.links.emplace_back("computed", "How the numbers are computed");
  document.sections = {{"audit", "What was found", page_html(page)},
                       {"tables", "Tables", all_tables},
                       {"computed", "How the numbers are computed", page_formulas(tables)}};
  document.made_from = report.study.file().name + "; the same file gives the same page";
  return render_document(document);
}

}  // namespace gradsync::report::published
