// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "analysis/model/study.h"
#include "base/table.h"

namespace gradsync::report {

/// One plain sentence of a report's verdict. Nothing is claimed that the data does not hold: a
/// clause without data is left out, or says which run would answer it (`missing`).
struct VerdictClause {
  std::string sentence;            ///< one of verdict_sentences()
  std::string text;                ///< the sentence, without a full stop
  std::vector<std::string> files;  ///< run files it rests on; empty for `missing`
  std::string datasets;            ///< in them: "/time/exposed, /time/iteration"
  std::string condition;           ///< what it holds for: "lenet, ddp, 4 ranks, 64 images per rank"
  bool missing = false;            ///< says what was not measured, and what would measure it
  std::vector<std::string> networks = {};  ///< it is about; empty where it is about all runs

  /// "scaling", "bound", "batch", …: the sentence up to its point.
  std::string topic() const { return sentence.substr(0, sentence.find('.')); }
};

/// Every sentence that a verdict can hold. tests/serial/analysis/verdict/verdict_sentences_test.cpp
/// has data for each in which it holds, and data in which it would be false and must not appear.
const std::vector<std::string_view>& verdict_sentences();

/// In reading order; empty for runs without data for a verdict. With several networks each text
/// begins with those it is about.
std::vector<VerdictClause> make_verdict(const RunStudy& runs);

/// The first eight clauses: what the exchange costs, what would reduce it, or why that is not
/// concluded; where networks are compared, none of those on single networks alone but of these.
std::vector<VerdictClause> main_clauses(const std::vector<VerdictClause>& clauses);

/// "a.h5, b.h5 and 3 more: /time/exposed"; empty where the clause rests on no file.
std::string source_text(const VerdictClause& clause);

/// The verdict as plain text, as Markdown and as JSON; each ends with a newline. Text of a limited
/// `width` holds the main sentences alone, as many as fit on a screen; without a limit (0) all of
/// them, and what they hold for and rest on.
std::string verdict_text(const std::vector<VerdictClause>& clauses, std::size_t width = 0);
std::string verdict_markdown(const std::vector<VerdictClause>& clauses);
std::string verdict_json(const std::vector<VerdictClause>& clauses);
/// The verdict as a table, a row a sentence, for --json.
Table verdict_table(const std::vector<VerdictClause>& clauses);

}  // namespace gradsync::report
