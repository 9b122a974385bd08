#include "analysis/published/search.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "analysis/published/choices.h"

namespace gradsync::report::published {

namespace {

constexpr std::size_t kMostEvidence = 64;  // rows that a search uses
constexpr double kHalf = 0.5, kTenth = 0.1;

struct Prediction {
  const Row* row;
  Range expected;
};

// Digits that leave more than a fifth open agree with anything: no evidence for a convention.
bool says_something(const Range& expected) {
  constexpr double kVague = 0.2;
  return (expected.high - expected.low) / 2 <= kVague * std::abs(expected.value);
}

Fit score(const std::vector<Prediction>& predictions, const Convention& convention,
          const Choice& choice) {
  Fit fit;
  fit.convention = &convention;
  fit.choice = choice;
  std::vector<double> ratios, distances;
  for (const auto& [row, expected] : predictions) {
    const Range printed = slipped(expected, choice.slip);
    ++fit.recomputed;
    if (compare(*row, printed) != Match::kDiffers && says_something(printed)) ++fit.agree;
    ratios.push_back(row->range().value / printed.value);
    const double distance = std::abs(std::log(ratios.back()));
    distances.push_back(std::isnan(distance) ? HUGE_VAL : distance);
  }
  if (ratios.empty()) return fit;
  std::tie(fit.lowest, fit.highest) = std::pair(*std::min_element(ratios.begin(), ratios.end()),
                                                *std::max_element(ratios.begin(), ratios.end()));
  std::sort(distances.begin(), distances.end());
  fit.median_distance = distances[distances.size() / 2];
  return fit;
}

double points(const Fit& fit) {
  return static_cast<double>(fit.agree) - kHalf * fit.choice.cost;
}

bool explains_more(const Fit& a, const Fit& b) {
  if (points(a) != points(b)) return points(a) > points(b);
  if (a.choice.cost != b.choice.cost) return a.choice.cost < b.choice.cost;
  if (a.recomputed != b.recomputed) return a.recomputed > b.recomputed;
  return a.median_distance < b.median_distance;
}

bool is_nearer(const Fit& a, const Fit& b) {
  const auto distance = [](const Fit& fit) {
    return fit.median_distance + kTenth / 2 * fit.choice.cost;
  };
  if (a.recomputed != b.recomputed) return a.recomputed > b.recomputed;
  return distance(a) < distance(b);
}

// "Nearest" is for people: no slip, and no choice that is far from the words.
bool may_be_nearest(const Fit& fit) {
  return fit.choice.slip.text.empty() && fit.choice.cost <= 2 && fit.recomputed > 0;
}

bool explains_enough(const Fit& fit) {
  const double share = kHalf + kTenth * fit.choice.cost;
  if (fit.choice.cost >= 2 && fit.evidence < 3) return false;
  return fit.agree > 0 &&
         static_cast<double>(fit.agree) >= share * static_cast<double>(fit.evidence) - 1e-9;
}

class Search {
 public:
  Search(const Study& study, const DerivedColumn& column, const AuditOptions& options)
      : study_(study), column_(column), options_(options) {
    for (const Row* row : column.rows)
      if (row->usable() && !is_base_row(study, *row) && rows_.size() < kMostEvidence)
        rows_.push_back(row);
  }

  Fit best() {
    const auto conventions = conventions_of(column_.kind);
    if (!conventions.empty()) best_.convention = nearest_.convention = conventions.front();
    for (const Convention* convention : conventions)
      for (const Choice& choice : choices_for(study_, column_, *convention, options_))
        try_choice(*convention, choice);
    best_.evidence = nearest_.evidence = plain_.evidence = evidence_;
    best_.reproduces = explains_enough(best_);
    // With nothing near, what the words say is a better measure than the least wrong reading.
    if (plain_.recomputed == nearest_.recomputed && plain_.recomputed > 0 &&
        nearest_.median_distance > std::log(kNear))
      nearest_ = plain_;
    Fit& chosen = best_.reproduces ? best_ : nearest_;
    chosen.tried = tried_;
    if (chosen.recomputed == 0) use_plain_choice(chosen);
    return chosen;
  }

 private:
  void try_choice(const Convention& convention, const Choice& choice) {
    std::vector<Prediction> predictions;
    for (const Row* row : rows_) {
      const Range expected = expect(study_, *row, convention, choice, options_).range;
      if (expected.known()) predictions.push_back({row, expected});
    }
    evidence_ = std::max(evidence_, predictions.size());
    for (const Slip& slip : slips_of(column_.rows.front()->unit.dimension, column_.unit)) {
      Choice slipping = choice;
      slipping.slip = slip;
      slipping.cost += slip.cost;
      consider(score(predictions, convention, slipping));
    }
  }

  void consider(const Fit& fit) {
    ++tried_;
    if (fit.choice.cost == 0 && fit.recomputed > plain_.recomputed) plain_ = fit;
    if (fit.agree > 0 && (best_.recomputed == 0 || explains_more(fit, best_))) best_ = fit;
    if (may_be_nearest(fit) && (nearest_.recomputed == 0 || is_nearer(fit, nearest_)))
      nearest_ = fit;
  }

  // Nothing could be recomputed: the first convention with its first choice says what is missing.
  void use_plain_choice(Fit& fit) const {
    if (!fit.convention) return;
    fit.choice = choices_for(study_, column_, *fit.convention, options_).front();
  }

  const Study& study_;
  const DerivedColumn& column_;
  const AuditOptions& options_;
  std::vector<const Row*> rows_;
  Fit best_, nearest_, plain_;
  std::size_t tried_ = 0, evidence_ = 0;
};

}  // namespace

Fit search(const Study& study, const DerivedColumn& column, const AuditOptions& options) {
  return Search(study, column, options).best();
}

Range implied_message(const Study& study, const DerivedColumn& column, const Convention& convention,
                      const AuditOptions& options) {
  Choice choice;
  choice.message = {"one byte", 1, 0};
  Range common = {0, 0, HUGE_VAL};
  std::size_t used = 0;
  for (const Row* row : column.rows) {
    const Range per_byte = expect(study, *row, convention, choice, options).range;
    if (!per_byte.known() || per_byte.low <= 0) continue;
    ++used;
    common.low = std::max(common.low, row->range().low / per_byte.high);
    common.high = std::min(common.high, row->range().high / per_byte.low);
  }
  if (used < 3 || !(common.low <= common.high)) return Range::unknown();
  common.value = (common.low + common.high) / 2;
  return common;
}

std::vector<DerivedColumn> derived_columns(const Study& study) {
  std::vector<DerivedColumn> columns;
  std::map<std::tuple<std::string, std::string, std::string, std::string, std::string>, std::size_t>
      known;
  for (const Row& row : study.rows()) {
    if (!row.what.derived) continue;
    const auto [place, added] = known.emplace(
        std::tuple(row.report, row.table, row.quantity, row.unit_text, row.model), columns.size());
    if (added)
      columns.push_back(
          {row.report, row.table, row.quantity, row.unit_text, row.model, row.what.kind, {}});
    columns[place->second].rows.push_back(&row);
  }
  return columns;
}

bool is_base_row(const Study& study, const Row& row) {
  return row.devices == study.base_devices(row);
}

}  // namespace gradsync::report::published
