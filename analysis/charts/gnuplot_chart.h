#pragma once

#include <string>

#include "analysis/charts/chart.h"

namespace gradsync::report {

/// A plot as the two files it is drawn from: numbers, and a gnuplot script that reads only them.
struct Figure {
  std::string csv;     ///< chart_csv
  std::string script;  ///< `gnuplot -c NAME.gnuplot png|svg|pdf PICTURE NAME.csv`
};

Figure gnuplot_figure(const Chart& chart);

/// `text` as a gnuplot string in which nothing has a meaning.
std::string gnuplot_text(const std::string& text);

/// `text` broken at spaces into lines of at most `width` characters.
std::vector<std::string> wrapped(const std::string& text, std::size_t width);

}  // namespace gradsync::report
