// gradsync-audit: published numbers in, what is wrong in them out. Needs no MPI, no GPU, no
// LibTorch.

#include <iostream>

#include <fmt/format.h>

#include "analysis/output/output.h"
#include "analysis/published/published_report.h"
#include "base/cli/program_output.h"
#include "base/file.h"
#include "base/version.h"

namespace {

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::report::published;

constexpr const char* kProgram = "gradsync-audit";

int show(const std::string& text) {
  std::cout << text << '\n';
  return 0;
}

ProgramHelp audit_help() {
  return {"gradsync-audit", "gradsync-audit [OPTION...] FILE",
          "Finds errors in published numbers of scaling studies.",
          "gradsync-audit results/published/reports.csv\n"
          "gradsync-audit reports.csv --table audit --format markdown\n"
          "gradsync-audit reports.csv --html audit.html --claims claims.json\n"
          "gradsync-audit --verify-claims claims.json"};
}

std::string list() {
  return list_of("tables (--table)", published_tables()) + list_of("formats (--format)", formats());
}

std::string one_file(const ParsedCommandLine& given) {
  if (given.positional.size() != 1)
    throw Error(ExitCode::kUsage,
                fmt::format("{} files were named, and one is audited", given.positional.size()),
                "gradsync-audit FILE, a CSV of report,table,model,mode,devices,batch_per_device,"
                "quantity,value,unit; docs/numbers.md describes it");
  return given.positional[0];
}

int verify(const ParsedCommandLine& given, const PublishedOptions& options) {
  if (!given.positional.empty())
    throw option_error(given.values, "verify-claims", "takes no file: the claims name it",
                       "gradsync-audit --verify-claims FILE");
  return show(verify_claims(options.claims.verify_claims, kProgram, published_option_table(),
                            tables_of_claims));
}

int audit_command(int argc, const char* const* argv) {
  const ParsedCommandLine given = resolve_options(published_option_table(), argc, argv, "FILE");
  if (const auto text = answer(audit_help(), published_option_table(), given))
    return std::cout << *text, 0;
  PublishedOptions options = published_options(given.values);
  if (options.list) return show(list());
  if (!options.claims.verify_claims.empty()) return verify(given, options);
  options.file = one_file(given);

  PublishedReport found = read_published(options);
  found.tables = options.output.with_chosen_columns(std::move(found.tables));
  ProgramOutput program(given, kProgram);
  ReportOutput output(options.output, std::cout, program.progress());
  write_published(found, output);
  if (!options.claims.claims.empty())
    write_claims(options.claims.claims, published_option_table(), given.values,
                 claimed_files({options.file}), found.tables);
  if (!options.html.empty()) write_file_atomically(options.html, published_html(found));
  for (const Table& table : found.tables)
    program.add(table);
  program.write_json();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return gradsync::run_program(kProgram, [&] { return audit_command(argc, argv); });
}
