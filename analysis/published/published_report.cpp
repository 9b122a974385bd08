#include "analysis/published/published_report.h"

#include <algorithm>

#include "analysis/output.h"
#include "analysis/published/audit_page.h"
#include "support/file.h"

namespace gradsync::published {

namespace {

constexpr const char* kGroup = "Published numbers";
constexpr std::int64_t kMostCount = 1'000'000'000'000;

void write_audit_page(const Page& page, ReportOutput& output) {
  output.write_page("audit", page_text(page), page_markdown(page));
}

}  // namespace

OptionTable published_option_table() {
  return {
      {"published", "FILE", "",
       "audit the published numbers in FILE, a CSV of report,table,model,mode,devices,"
       "batch_per_device,quantity,value,unit, instead of reading runs; --table then takes audit, "
       "values, columns, findings, batch-size, speedup, compute-comm, bandwidth, large-batch",
       kGroup},
      {"images", "N", "50000", "images of one epoch", kGroup},
      {"parameters", "N", "0", "parameters of the models, 4 bytes each; 0: by the models' names",
       kGroup},
      {"message-bytes", "SIZE", "0", "bytes of one gradient; counts before --parameters", kGroup},
      {"batch", "N", "0", "batch per device where FILE says none", kGroup},
      {"fastest-link", "SIZE", "900GB",
       "a second, the most that one device can send: more is called impossible", kGroup},
  };
}

PublishedOptions published_options(const OptionValues& values) {
  PublishedOptions options;
  options.file = text_option(values, "published");
  const std::int64_t batch = integer_option(values, "batch", 0, kMostCount);
  if (batch > 0) options.batch_per_device = batch;
  options.audit.images = static_cast<double>(integer_option(values, "images", 1, kMostCount));
  options.audit.parameters =
      static_cast<double>(integer_option(values, "parameters", 0, kMostCount));
  options.audit.message_bytes =
      static_cast<double>(size_option(values, "message-bytes", 0, kMostCount));
  options.audit.fastest_link_bytes_per_s =
      static_cast<double>(size_option(values, "fastest-link", 1, 1000 * kMostCount));
  return options;
}

void report_published(const PublishedOptions& options, ReportOutput& output) {
  const std::string text = read_text_file(options.file);
  const Study study(
      parse_published(text, options.file.filename().string(), options.batch_per_device));
  const Audit result = audit(study, options.audit);
  const bool page = std::any_of(options.tables.begin(), options.tables.end(),
                                [](const PublishedTableSpec* table) { return !table->make; });
  for (const PublishedTableSpec* table : options.tables)
    if (table->make)
      output.write(table->make(study, result), page && table->on_page);
    else
      write_audit_page(audit_page(study, result), output);
}

}  // namespace gradsync::published
