#pragma once

#include <string>
#include <vector>

#include "analysis/read/run_set.h"
#include "base/table.h"

/// What every table with one row per run and rank has in common.
namespace gradsync::report {

/// mode, model, ranks, batch per rank, global batch: the cell of a study that a row is about.
std::vector<Column> cell_columns();

/// The same with the rank and the status of the run.
std::vector<Column> run_columns();

/// Their cells; `rank` is a number or a word such as "mean".
std::vector<Cell> run_cells(const Run& run, const Cell& rank);

/// The column that tells repeats apart; it stands last, since names are long.
Column run_name_column();

/// Digits behind the point for times in ms, one choice a table: 3 below 10 ms, else 2.
int ms_decimals(double largest_ms);

/// How many iterations SteadyRows leaves out: "2 a run by rule …, 0 to 15 more by the steady-state
/// test (MSER-5)", with how many runs were too short for it or never became steady.
std::string warmup_text(const RunSet& set);

/// What a reader of any table must know about its runs: those that did not end, those left out. The
/// registry adds it to every table.
std::vector<std::string> remark_notes(const RunSet& set);

/// How the runs of a set count waiting for a late rank: since schema 2 of run files it is a part of
/// the iteration beside communication, before that it was a part of communication.
struct WaitKinds {
  bool apart = false, within = false;
};
WaitKinds wait_kinds(const RunSet& set);

/// Adds waiting_text() to the notes, where it says something.
void add_waiting_note(const RunSet& set, std::vector<std::string>& notes);

/// Notes about runs of which a set may hold one kind or both: `apart`, `within`, or both, each with
/// the runs it speaks of.
std::vector<std::string> wait_notes(const WaitKinds& kinds, const std::string& apart,
                                    const std::string& within);

}  // namespace gradsync::report
