# SPDX-License-Identifier: BSD-3-Clause
"""The audit of a study: a verdict for each number, a convention for each derived column, and findings."""
from __future__ import annotations

import math
from dataclasses import dataclass, field

from .checks import Checks, Finding
from .conventions import AGREES, DIFFERS, Fit, compare, expect, search
from .published import UNKNOWN, Kind, Range, Row, exact, over
from .study import Found, Options, Study, epoch_iterations

JUDGMENTS = ("primary", "agree", "differ", "cannot")


@dataclass(frozen=True)
class Verdict:
    """What is said of one number: "agrees", "differs: expected 1.78", "cannot be recomputed: why"."""

    judgment: str
    text: str
    expected: Range = Range()  # in base units
    lines: tuple[int, ...] = ()  # the numbers it was recomputed from


@dataclass(eq=False)
class Column:
    """Rows that were computed alike: one derived quantity of one model in one table of one report."""

    report: str
    table: str
    quantity: str
    unit: str
    model: str
    rows: list[Row] = field(default_factory=list)
    fit: Fit = field(default_factory=Fit)
    counts: dict[str, int] = field(default_factory=dict)  # by judgment

    @property
    def kind(self) -> Kind:
        return self.rows[0].kind

    @property
    def usable(self) -> list[Row]:
        return [row for row in self.rows if row.usable]


class Audit:
    """Audits a study; a pure function of study and options."""

    def __init__(self, study: Study, options: Options):
        self.study, self.options = study, options
        self.verdicts = {row: self._as_printed(row) for row in study.rows}
        columns: dict[tuple, Column] = {}
        for row in (row for row in study.rows if row.derived):
            key = row.report, row.table, row.quantity, row.unit_text, row.model
            columns.setdefault(key, Column(*key)).rows.append(row)
        self.columns = list(columns.values())
        for column in self.columns:
            column.fit = search(study, column.rows, options)
            self.verdicts.update((row, self._verdict(row, column.fit)) for row in column.usable)
            of_rows = [self.verdicts[row].judgment for row in column.rows]
            column.counts = {judgment: of_rows.count(judgment) for judgment in JUDGMENTS}
        self.findings: list[Finding] = sum((Checks(self, report).findings() for report in [*study.by_report, ""]), [])

    def iterations_of(self, row: Row) -> float:
        """Iterations of an epoch of the row's setting; NaN where devices or batch are not given."""
        return epoch_iterations(self.options.images, row.devices * row.batch)

    @staticmethod
    def _as_printed(row: Row) -> Verdict:
        if row.usable:
            return Verdict("primary", "primary", row.range)
        why = f"'{row.unit_text}' is the unit of {row.unit.dimension}, but {row.quantity} is {row.kind.dimension}"
        why = f"unknown unit '{row.unit_text}'" if row.unit.dimension == UNKNOWN else why
        return _cannot("unknown quantity" if row.kind is Kind.OTHER else why)

    def _verdict(self, row: Row, fit: Fit) -> Verdict:
        if fit.convention is None:
            return _cannot("no convention is known for it")
        expected = expect(self.study, row, fit.convention, fit.choice, self.options)
        if not expected.range.known:
            return _cannot(expected.missing)
        number = row.shown_like(expected.range.value)
        gives = f"{fit.convention.formula} gives {number}"
        if not fit.reproduces and row.kind in (Kind.COMPUTE_TIME, Kind.COMM_TIME):
            return _cannot(f"no convention gives this column, so it may have been measured ({gives})", expected)
        if not fit.reproduces and fit.choice.time.sum and not self.study.any_time_of(row).range.known:
            why = f"no epoch time of {row.where} is published (with compute + communication, {gives})"
            return _cannot(why, expected)
        match = compare(row, expected.range)
        if match != DIFFERS:
            return Verdict("agree", match, expected.range, expected.lines)
        how = "" if fit.reproduces else f" ({fit.convention.name}, the nearest)"
        if not fit.reproduces and not fit.near:
            how = f" ({fit.convention.name}; no convention comes within a factor of 2)"
        hint = self._hint(row, fit, expected.range.value) if row.kind is Kind.BANDWIDTH else ""
        return Verdict("differ", f"differs: expected {number}{how}{hint}", expected.range, expected.lines)

    def _hint(self, row: Row, fit: Fit, expected: float) -> str:
        """The volume that was rounded to few digits before it was divided by the time; else the time that is needed."""
        comm_s = self.study.same_setting(row, Kind.COMM_TIME).range.value
        volume = comm_s * expected / row.unit.factor
        for digits in (3, 2, 1) if fit.reproduces and volume > 0 else ():
            step = 10.0 ** (math.floor(math.log10(volume)) + 1 - digits)
            rounded = math.floor(volume / step + 0.5) * step
            if compare(row, exact(rounded / comm_s * row.unit.factor)) == AGREES:
                unit = row.unit_text.split("/")[0]
                return f"; follows from {rounded:.3g} {unit} in {comm_s:.4g} s, rounded before the division"
        needed_s = over(comm_s * expected, row.range.value)
        is_needed = row.value > 0 and not fit.choice.derived_comm and math.isfinite(needed_s)
        return f"; needs comm = {needed_s:.4g} s" if is_needed else ""


def _cannot(why: str, expected: Found = Found()) -> Verdict:
    return Verdict("cannot", f"cannot be recomputed: {why}", lines=expected.lines)
