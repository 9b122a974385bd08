# SPDX-License-Identifier: BSD-3-Clause
"""What cannot be, is contradicted or misleads: one method a check; findings.csv has the words."""
from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import permutations
from typing import TYPE_CHECKING, Callable, Iterable

from .conventions import CONVENTIONS, all_links, expect, implied_message, ring, speedup, split
from .published import EPOCH_TIMES, NAN, RATIO, SHARES, Kind, Row, over, read_data
from .study import SUM_OF_PARTS, WITHOUT_EXCHANGE, BaseRule, Found, epoch_iterations, source_of

if TYPE_CHECKING:
    from .audit import Audit, Column

SEVERITIES = {
    "impossible": "cannot have been measured as printed",
    "contradicted": "by another number of the file",
    "doubtful": "possible, but misleads",
}
CLASSES = 10  # of CIFAR-10, whose scores these reports print
CHANCE = math.log(CLASSES)  # loss of guessing
SLOWER_BY = 1.05  # epochs of one setting vary by a few per cent


@dataclass
class Finding:
    """A fault of some numbers of one report, or across reports where `report` is empty."""

    report: str
    severity: str
    check: str
    what: str
    why: str  # a sentence: it cannot be, or what it means; may be empty
    right_if: str  # a clause: what would make the values right
    cells: list[str] = field(default_factory=list)  # where: "2 devices at batch 32: 33.27 s of 16.1 s"
    lines: set[int] = field(default_factory=set)


CATALOG = {(one["check"], one["name"]): one | {"order": order} for order, one in enumerate(read_data("findings.csv"))}


def by(rows: Iterable[Row], *names: str) -> list[tuple[tuple, list[Row]]]:
    """Groups of rows that are equal in these attributes, sorted by them."""
    groups = defaultdict(list)
    for row in rows:
        groups[tuple(getattr(row, name) for name in names)].append(row)
    return sorted(groups.items(), key=lambda one: one[0])


def bytes_text(size: float) -> str:
    if size >= 1e9:
        return f"{size / 1e9:.0f} GB" if size >= 1e13 else f"{size / 1e9:.4g} GB"
    return f"{size / 1e6:.4g} MB" if size >= 1e6 else f"{size / 1e3:.4g} kB"


def _is_mean_of_batches(accuracy: float, images: int, size: int) -> bool:
    """accuracy * images is whole unless unequal batches were averaged; then accuracy * batches * multiple is."""
    full, rest = divmod(images, size)
    scaled = accuracy * (full + 1) * math.lcm(size, rest)
    return rest > 0 and scaled < 1e6 and abs(scaled - round(scaled)) < 1e-3  # above, single precision is too coarse


@dataclass(frozen=True)
class Messages:
    """Communication of one epoch at one batch: so many messages of the same size."""

    batch: int
    count: float
    total_s: float
    lines: list[Row | int]

    @property
    def each_s(self) -> float:
        return self.total_s / self.count


class Checks:
    """The checks of one report, and what they find; "" is for what is found across reports. Rows are usable ones."""

    def __init__(self, audit: Audit, report: str):
        self.audit, self.study, self.report, self.images = audit, audit.study, report, audit.options.images
        self.columns = [column for column in audit.columns if column.report == report]
        self.usable = [row for row in audit.study.by_report.get(report, ()) if row.usable]
        self.found: dict[tuple, Finding] = {}

    def findings(self) -> list[Finding]:
        """By severity, then in the order of the checks."""
        for self.check, run in CHECKS.items():
            run(self)
        return [self.found[key] for key in sorted(self.found)]

    def rows(self, *kinds: Kind) -> list[Row]:
        return [row for row in self.usable if row.kind in kinds] if kinds else self.usable

    def columns_of(self, *kinds: Kind) -> list[Column]:
        return [column for column in self.columns if column.kind in kinds]

    def note(self, name: str, cell: str, rows: Iterable[Row | int], group: object = 0, /, **values) -> None:
        """Adds a cell to the finding of this name. Each group, a column as a rule, has a finding of its own."""
        entry = CATALOG[self.check, name]
        order = self.columns.index(group) + 1 if group in self.columns else group
        key = list(SEVERITIES).index(entry["severity"]), list(CHECKS).index(self.check), order, entry["order"]
        if key not in self.found:
            texts = (entry[part].format(**values) for part in ("what", "why", "right_if"))
            self.found[key] = Finding(self.report, entry["severity"], self.check, *texts)
        self.found[key].cells += [cell] if cell else []
        self.found[key].lines |= {one if isinstance(one, int) else one.line for one in rows}

    # --- single numbers, and the parts of a whole -----------------------------------------------------

    def check_ranges(self) -> None:
        """Negative times, accuracies above 100 %, more right than there are."""
        for row in self.rows():
            is_share, is_count = row.kind in (Kind.ACCURACY, *SHARES), row.kind is Kind.CORRECT
            is_percentage = not row.unit.percent and row.value <= 100
            is_positive = row.unit.dimension != RATIO or row.kind in (Kind.SPEEDUP, Kind.WEAK_SPEEDUP)
            faults = {
                "below-zero": row.value < 0,
                "zero": row.value == 0 and is_positive,
                "above": is_share and row.range.low > 1 and not is_percentage,
                "fraction": is_share and row.range.low > 1 and is_percentage,
                "too-many": is_count and 0 < row.unit.total < row.value,
                "not-whole": is_count and not row.value.is_integer(),
            }
            for name in (name for name, is_fault in faults.items() if is_fault):
                self.note(name, f"line {row.line}: {row.quantity} {row.printed}", [row])

    def check_epoch_parts(self) -> None:
        """Compute and communication against the epoch."""
        for row in self.rows(Kind.COMPUTE_TIME, Kind.COMM_TIME):
            is_comm = row.kind is Kind.COMM_TIME
            other = self.study.same_setting(row, Kind.COMPUTE_TIME if is_comm else Kind.COMM_TIME)
            whole = self.study.any_time_of(row)
            if (is_comm and other.range.known) or not whole.range.known:
                continue  # a setting with both parts is judged once, at its compute time
            compute, comm = (other.range, row.range) if is_comm else (row.range, other.range)
            epoch, lines = whole.range, [row, *other.lines, *whole.lines]
            of_epoch = f"s of {epoch.value:.4g} s"
            if comm.low > epoch.high:
                self.note("comm-above", f"{row.where}: {comm.value:.4g} {of_epoch}", lines)
            if compute.low > epoch.high:
                self.note("compute-above", f"{row.where}: {compute.value:.4g} {of_epoch}", lines)
            if not compute.known or not comm.known:
                continue
            total, rest = compute.plus(comm), epoch.value - (compute.value + comm.value)
            text = f"{row.where}: {compute.value:.4g} s + {comm.value:.4g} s, {abs(rest):.4g} s"
            if compute.low <= epoch.high and epoch.low <= compute.high and comm.low > 0:
                text = f"{row.where}: {compute.value:.4g} {of_epoch}, with {comm.value:.4g} s of communication"
                self.note("compute-whole", f"{text}; needs compute = {epoch.value - comm.value:.4g} s", lines)
            elif total.low > epoch.high:
                self.note("sum-above", f"{text} more than {epoch.value:.4g} s", lines)
            elif total.high < epoch.low and rest > 0.05 * epoch.value:
                self.note("unaccounted", f"{text} less than {epoch.value:.4g} s", lines)

    # --- speedups -------------------------------------------------------------------------------------

    def check_speedup(self) -> None:
        """Super-linear speedups, efficiencies above 1, mixed assumptions."""
        self._super_linear()
        self._constant_compute()
        for column in self.columns_of(Kind.SPEEDUP, Kind.WEAK_SPEEDUP):
            (self._explained_speedups if column.fit.reproduces else self._unexplained_speedups)(column)

    def _super_linear(self) -> None:
        study = self.study
        for row in (row for row in self.rows() if row.devices):
            if row.kind in (Kind.SPEEDUP, Kind.WEAK_SPEEDUP) and row.range.low > row.devices:
                time, base = study.any_time_of(row).range, study.any_base_time_of(row).range
                hint = f"; needs T(1) = {row.value * time.value:.4g} s instead of {base.value:.4g} s"
                self.note("super-linear", f"{row.where}: {row.text}{hint if time.known and base.known else ''}", [row])
            if row.kind in (Kind.EFFICIENCY, Kind.WEAK_EFFICIENCY) and row.range.low > 1:
                self.note("efficiency", f"{row.where}: {row.printed}", [row])
            # T(1)/T(n) > n by the epoch times themselves: T(n) - T(1)/n is then negative.
            base = study.base_time_of(row, source_of(row)) if row.epoch and not study.is_base(row) else Found()
            if base.range.known and base.range.low > row.devices / base.devices * row.epoch.high:
                comm = split(base.range.value, row.epoch.value, row.devices / base.devices)[1]
                cell = f"{row.where}: {row.epoch.value:.4g} s against {base.range.value:.4g} s"
                cell += f", derived communication {comm:.4g} s"
                self.note("super-linear-times", cell, [row, *base.lines])

    def _constant_compute(self) -> None:
        rows = [row for row in self.rows(Kind.COMPUTE_TIME) if row.devices]
        groups = dict(by(rows, "model", "table", "mode", "extra", "batch"))
        for row in rows:
            group = groups[row.model, row.table, row.mode, row.extra, row.batch]
            less = max((one for one in group if one.devices < row.devices), key=lambda one: one.devices, default=None)
            if less and less.value > 0 and abs(row.range.value / less.range.value - 1) <= 0.1:
                times = f"{less.range.value:.4g} s on {less.devices}, {row.range.value:.4g} s on {row.devices} devices"
                self.note("constant-compute", f"batch {row.batch}: {times}", [less, row])

    def _explained_speedups(self, column: Column) -> None:
        """Values from other times, work that was counted n times, and a base of another global batch."""
        study, fit, plain = self.study, column.fit, []
        for row in column.rows:
            time = study.time_of(row, fit.choice.time).range
            base = study.base_time_of(row, fit.choice.base, fit.choice.rule).range
            if fit.convention.formula == "T(1)/T(n)" and self.audit.verdicts[row].judgment == "differ" and time.known:
                cell = f"{row.where}: {row.text} needs T(1) = {row.range.value * time.value:.4g} s"
                self.note("other-times", cell, [row], column)
            if study.is_base(row):
                continue
            plain += [value for value in [speedup(base.value, time.value)] if value > 0]
            used, fair = (study.base_time_of(row, fit.choice.base, BaseRule(same)) for same in (False, True))
            apart = used.range.known and abs(over(fair.range.value, used.range.value) - 1) > 0.05
            if apart and time.known and not fit.choice.rule.same_global_batch:
                ratios = [speedup(one.range.value, time.value) for one in (used, fair)]
                cell = f"{row.where}: T(1)/T(n) is {ratios[0]:.2f}, against the same global batch {ratios[1]:.2f}"
                self.note("other-batch", cell, [row, *used.lines, *fair.lines], column)
        if column.kind is Kind.SPEEDUP and fit.convention.name == "weak-speedup":
            computes = [one.fit for one in self.columns_of(Kind.COMPUTE_TIME)]
            splits = any(one.reproduces and one.convention.formula == "T(1)/n" for one in computes)
            why = "The same report's compute time T(1)/n assumes that the work is split, so one of the two is wrong."
            low, high = min(plain, default=math.inf), max(plain, default=0.0)
            self.note("n-times", "", column.rows, column, low=low, high=high, why=why if splits else "")

    def _unexplained_speedups(self, column: Column) -> None:
        weak = column.kind is Kind.WEAK_SPEEDUP
        for row in column.usable:
            base, parts = self.study.any_base_time_of(row), self.study.time_of(row, SUM_OF_PARTS)
            is_small = row.range.low <= 1 and row.value > 0 and not self.study.is_base(row)
            if is_small and base.range.known and parts.range.known:
                needed = base.range.value / row.value
                also = f", or {needed:.4g} s as T(1)/T(n)" if weak else ""
                cell = f"{row.where}: {row.text} needs T(n) = {needed * (row.devices if weak else 1):.4g} s{also}"
                cell += f", where compute + communication is {parts.range.value:.4g} s"
                words = {"weak": "weak " if weak else "", "n": "n*" if weak else ""}
                self.note("not-above-one", cell, [row, *parts.lines], column, **words)

    # --- bandwidths and units -------------------------------------------------------------------------

    def check_bandwidth(self) -> None:
        """Bandwidths that no link has, bytes that nobody sent."""
        fastest = self.audit.options.fastest_link
        for column in self.columns_of(Kind.BANDWIDTH):
            for row in column.usable:
                if row.range.low > fastest:
                    self.note("no-link", f"{row.where}: {row.printed}", [row], column, fastest=bytes_text(fastest))
                self._judge_volume(column, row)
            groups = by((row for row in column.usable if row.batch and row.value > 0), "mode", "extra", "devices")
            for (_, _, devices), rows in groups:
                small, large = min(rows, key=lambda row: row.batch), max(rows, key=lambda row: row.batch)
                growth = large.range.value / small.range.value
                if growth > 3:
                    cell = f"{devices} devices: {growth:.3g} times from batch {small.batch} to {large.batch}"
                    self.note("by-batch", cell, [small, large], column)
            for convention in () if column.fit.reproduces else CONVENTIONS[Kind.BANDWIDTH]:
                size = implied_message(self.study, column.rows, convention, self.audit.options)
                if size.known:
                    ends = {"least": math.ceil(size.low / 4), "most": math.floor(size.high / 4)}
                    self.note("other-message", "", column.rows, column, name=convention.name,
                              formula=convention.formula, size=bytes_text(size.value), **ends)  # fmt: skip
                    break

    def _judge_volume(self, column: Column, row: Row) -> None:
        """Bandwidth x communication time against what an epoch sends: too much, or one message."""
        fit, comm = column.fit, self.study.same_setting(row, Kind.COMM_TIME)
        iterations = self.audit.iterations_of(row)
        message, lines = fit.choice.message.bytes or NAN, [*comm.lines, row]
        claimed, one_link = row.range.value * comm.range.value, ring(row.devices, message) * iterations
        # More than this was not sent even if every device processed all images.
        sent = row.devices * all_links(row.devices, message) * iterations
        if claimed > 1.1 * sent:
            cell = f"{row.where}: {row.printed} for {comm.range.value:.4g} s are {bytes_text(claimed)}, of "
            cell += f"{bytes_text(sent)} in an epoch; needs comm = {one_link / row.range.value:.3g} s"
            self.note("not-sent", cell, lines, column, message=fit.choice.message.text)
        is_of_one = "iterations" not in fit.convention.needs and (fit.reproduces or fit.near)
        if is_of_one and iterations > 1 and one_link > 0 and comm.range.value > 0:
            busbw = bytes_text(one_link / comm.range.value)
            cell = f"{row.where}: {row.printed} instead of a busbw of {busbw}/s over {iterations:.0f} iterations"
            self.note("one-message", cell, lines, column)

    def check_units(self) -> None:
        """Units off by a factor of 1,000 or 1,024, in a column and between two reports."""
        for column in self.columns:
            slip = column.fit.choice.slip
            if column.fit.reproduces and slip.text:
                self.note("slip", "", column.rows, column, quantity=column.quantity, unit=column.unit, slip=slip.text,
                           formula=column.fit.convention.formula, factor=slip.factor)  # fmt: skip
        values = defaultdict(dict)
        for row in () if self.report else self.study.rows:
            if row.usable and row.derived and row.unit.dimension != RATIO and row.value > 0:
                values[row.kind, row.report].setdefault((row.model, row.devices, row.batch), row)
        reports = sorted({report for _, report in values})
        pairs = permutations(reports, 2) if len(reports) <= 50 else ()
        for group, (first, second) in enumerate(pairs):
            for place, kind in enumerate((Kind.BANDWIDTH, Kind.COMM_TIME, Kind.COMPUTE_TIME)):
                one, other = values[kind, first], values[kind, second]
                both = [(one[key], other[key]) for key in sorted(one.keys() & other.keys())]
                ratios = [b.range.value / a.range.value for a, b in both]
                if len(both) >= 3 and min(ratios) > 1000 / 1.5 and max(ratios) < 1000 * 1.5:
                    words = {"first": first, "second": second, "low": min(ratios), "high": max(ratios)}
                    for a, b in both:
                        cell = f"{a.where}: {a.printed} and {b.printed}"
                        self.note("thousand", cell, [a, b], 3 * group + place, **words)

    # --- one run --------------------------------------------------------------------------------------

    def check_shares(self) -> None:
        """Percentages that do not sum."""
        for _, rows in by(self.rows(*SHARES), "table", "model", "mode", "devices", "batch", "extra"):
            low, value, high = (sum(getattr(row.range, end) for row in rows) for end in ("low", "value", "high"))
            parts = " + ".join(f"{row.quantity} {100 * row.range.value:.4g} %" for row in rows)
            text = f"{rows[0].mode or rows[0].table}, {rows[0].where}: {parts}"
            if low > 1:
                self.note("above", f"{text} = {100 * value:.4g} %", rows)
            if high < 0.99:
                self.note("unaccounted", f"{text} leave {100 * (1 - value):.4g} %", rows)

    def check_replicas(self) -> None:
        """Ranks of one synchronous run that disagree."""
        ranks = [row for row in self.rows() if ":rank" in row.mode and row.synchronization not in WITHOUT_EXCHANGE]
        for _, rows in by(ranks, "table", "model", "synchronization", "devices", "batch", "quantity", "extra"):
            first, values = rows[0], [row.range.value for row in rows]
            text = f"{first.synchronization}, {first.where}: {', '.join(row.text for row in rows)} {first.unit_text}"
            if (first.kind is Kind.CORRECT or first.quantity.startswith("test_")) and min(values) != max(values):
                self.note("results", text, rows)
            if first.kind is Kind.ITERATION_TIME and max(values) > 1.05 * min(values):
                self.note("times", text, rows)

    def check_same_thing(self) -> None:
        """Two values for one measurement, which neither a first epoch, a warm-up, nor running time is."""
        times = [row for row in self.rows(Kind.EPOCH_TIME, Kind.TRAINING_TIME) if row.value > 0 and row.devices]
        times = [row for row in times if "_1_" not in row.quantity]
        for _, rows in by(times, "model", "mode", "devices", "batch", "extra"):
            least, most = (end(rows, key=lambda row: row.range.value) for end in (min, max))
            factor = most.range.low / least.range.high
            text = f"{rows[0].where}: {', '.join(f'{row.printed} ({row.quantity}, {row.table})' for row in rows)}"
            for unit in (60, 1000):
                text += f" (about {unit} times: a unit is wrong)" if unit / 1.2 < factor < unit * 1.2 else ""
            if factor > SLOWER_BY:
                self.note("apart" if factor > 1.5 else "differ", text, rows)

    def check_batch(self) -> None:
        """Batches larger than the data set."""
        images = self.images
        whole = [row for row in self.rows(*EPOCH_TIMES) if row.devices * row.batch > images]
        for group, (_, rows) in enumerate(by(whole, "table", "quantity", "mode", "devices")):
            times = [row.range.value for row in rows]
            spread = f" Their times from {min(times):.4g} s to {max(times):.4g} s show the spread of repeats (or "
            spread = f"{spread}memory set aside), not the effect of the batch size." if len(rows) > 1 else ""
            for row in rows:
                words = {"images": self.images, "count": len(rows), "spread": spread}
                self.note("whole-set", f"{row.where}: {row.printed}", [row], group, **words)

    # --- learning -------------------------------------------------------------------------------------

    def check_learning(self) -> None:
        """Losses and accuracies that do not go together."""
        images = self.images
        for row in self.rows(Kind.ACCURACY):
            right, size = row.range.value * images, row.devices * row.batch
            is_exact = (row.range.high - row.range.low) * images <= 0.01 and not row.quantity.startswith("test")
            if is_exact and abs(right - round(right)) >= 0.01:
                of_batches = 0 < size < images and _is_mean_of_batches(row.range.value, images, size)
                text = f"{row.run_text}: {100 * row.range.value:.8g} % of {images:,} are {right:.2f} images"
                mean = f", but a whole number in the mean over batches of {size} whose last one is smaller"
                self.note("not-whole", text + (mean if of_batches else ""), [row])
        for row in self.rows(Kind.LOSS):
            beside = [one for one in self.study.setting_of(row) if one.table == row.table and one.usable]
            name = row.quantity.replace("loss", "accuracy", 1)
            accuracy = next((one for one in beside if one.quantity == name), None)
            if accuracy:
                self._judge_loss(row, accuracy, [one.value for one in beside if one.quantity.startswith("loss_iter")])

    def _judge_loss(self, row: Row, accuracy: Row, of_iterations: list[float]) -> None:
        text = f"{row.run_text}: loss {row.text} at {100 * accuracy.range.value:.4g} %"
        words = {"classes": CLASSES, "chance": f"ln {CLASSES} = {CHANCE:.3f}"}
        # A wrong answer gives the right class at most half of the probability, so its loss is at least ln 2.
        least = (1 - accuracy.range.high) * math.log(2)
        if row.value >= 0 and row.range.high < least:
            self.note("too-small", f"{text} needs at least {least:.4g}", [row, accuracy])
        if accuracy.range.value > 1.3 / CLASSES:
            return
        if row.value > 1.3 * CHANCE:
            self.note("diverged", text, [row, accuracy], **words)
        smallest = min(of_iterations, default=NAN)
        if smallest > 1.3 * row.value and row.value < CHANCE / 1.3:
            text += f", printed iterations {smallest:.4g} or more; needs a count "
            self.note("divided", f"{text}{over(smallest, row.value):.2g} times smaller", [row, accuracy], **words)

    # --- clocks and messages --------------------------------------------------------------------------

    def check_waiting(self) -> None:
        """Training time against running time."""
        for row in self.rows(Kind.TRAINING_TIME):
            beside = [one for one in self.study.setting_of(row) if one.table == row.table and one.usable]
            of_run = row.quantity.replace("training", "running", 1)  # of the same epoch
            running = next((one for one in beside if one.quantity == of_run), None)
            if running is None:
                continue
            text = f"{row.where}: {row.range.value:.4g} s of {running.range.value:.4g} s"
            if row.range.low > running.range.high:
                self.note("above", text, [row, running])
            if row.range.value > 0 and running.range.value > 1.2 * row.range.value:
                bases = [self.study.base_time_of(one, source_of(one)).range for one in (row, running)]
                if not self.study.is_base(row) and bases[0].known and bases[1].known:
                    ratios = [speedup(base.value, one.range.value) for base, one in zip(bases, (row, running))]
                    text += f", so T(1)/T(n) is {ratios[0]:.2f} or {ratios[1]:.2f}"
                self.note("much", text, [row, running])

    def _messages(self, derived: bool) -> list[tuple[int, list[Messages]]]:
        """Devices, and messages by batch, of each setting; derived: T(n) - T(1)/n of the first source."""
        settings, source = defaultdict(list), self.study.sources[self.report][0]
        for row in self.rows():
            count = epoch_iterations(self.images, row.devices * row.batch) if row.devices > 1 else NAN
            total, lines = NAN, [row]
            if not derived and row.kind is Kind.COMM_TIME:
                total = row.range.value
            elif derived and row.epoch and source_of(row) == source:
                base = self.study.base_time_of(row, source)
                total = split(base.range.value, row.epoch.value, row.devices)[1] if base.devices == 1 else NAN
                lines = [row, *base.lines]
            if count > 1 and total > 0:
                settings[row.model, row.mode, row.devices, row.extra].append(Messages(row.batch, count, total, lines))
        return [(key[2], sorted(found, key=lambda one: one.batch)) for key, found in sorted(settings.items())]

    def check_message_time(self) -> None:
        """Time per message against the number of messages."""
        printed = self._messages(derived=False) if self.report else []
        derived = self._messages(derived=True) if self.report and not printed else []
        for devices, series in printed or derived:
            text = ", ".join(f"{1e3 * one.each_s:.3g} ms x {one.count:.0f} at batch {one.batch}" for one in series)
            grows = False  # more of a message may be hidden behind a larger batch, so only growth is a contradiction
            for one in series:
                shortest = min((other.each_s for other in series if other.batch < one.batch), default=math.inf)
                if one.each_s > 3 * shortest:
                    grows = True
                    text += f"; batch {one.batch} needs {one.count * shortest:.3g} s instead of {one.total_s:.4g} s"
            total_grows = any(b.count < a.count and b.total_s > 1.1 * a.total_s for a, b in zip(series, series[1:]))
            if grows:
                self.note("total-grows" if printed and total_grows else "each-grows", f"{devices} devices: {text}",
                           [line for one in series for line in one.lines],
                           derived="" if printed else " (communication derived, T(n) - T(1)/n)")  # fmt: skip

    def check_one_device(self) -> None:
        """Communication on one device."""
        for row in self.rows(Kind.COMM_TIME, Kind.BANDWIDTH, Kind.COMM_SHARE):
            if row.devices == 1 and row.value > 0:
                self.note("exchange", f"{row.where}: {row.quantity} {row.printed}", [row])

    def check_two_clocks(self) -> None:
        """Two different clocks in one ratio, or in one report."""
        ratio = parts = None  # the last column of each by a clock counts
        for column in self.columns:
            choice, convention = column.fit.choice, column.fit.convention
            if not column.fit.reproduces or not {"time", "base"} <= set(convention.needs) or not choice.time.clock:
                continue
            ratio = column if column.kind is Kind.SPEEDUP else ratio
            parts = column if column.kind in (Kind.COMPUTE_TIME, Kind.COMM_TIME) else parts
            is_mixed = choice.base.clock and choice.base.clock is not choice.time.clock
            for row in column.usable if is_mixed else ():
                values = []
                for source in (choice.time, choice.base):
                    by_one = choice._replace(time=source, base=source)
                    value = expect(self.study, row, convention, by_one, self.audit.options).range
                    values.append(f"{row.shown_like(value.value) if value.known else 'unknown'} by {source.quantity}")
                if not self.study.is_base(row):
                    self.note("ratio", f"{row.where}: {row.quantity} {row.text}; {', '.join(values)}", [row], column,
                               time=choice.time.quantity, base=choice.base.quantity)  # fmt: skip
        if ratio and parts and ratio.fit.choice.time.clock is not parts.fit.choice.time.clock:
            self.note("report", "", parts.rows, ratio=ratio.fit.choice.time.quantity, quantity=parts.quantity,
                       parts=parts.fit.choice.time.quantity)  # fmt: skip

    def check_all_links(self) -> None:
        """The volume of all links together presented as bandwidth."""
        for column in self.columns_of(Kind.BANDWIDTH):
            is_volume = column.fit.reproduces and column.fit.convention.name.startswith("total-volume")
            for row in column.usable if is_volume else ():
                if row.devices and not self.study.is_base(row):
                    one_link = row.shown_like(row.range.value / row.devices)
                    cell = f"{row.where}: {row.printed}, on one link {one_link} {row.unit_text}"
                    self.note("volume", cell, [row], column, formula=column.fit.convention.formula)

    def check_slower(self) -> None:
        """More devices slower than one, at the same global batch where that is published, else per device."""
        for row in (row for row in self.rows() if row.epoch and row.devices and not self.study.is_base(row)):
            bases = [self.study.base_time_of(row, source_of(row), BaseRule(same)) for same in (True, False)]
            base = bases[0] if bases[0].range.known else bases[1]
            if base.devices == 1 and row.epoch.low > SLOWER_BY * base.range.high:
                times = f"{row.quantity} of {row.epoch.value:.4g} s against {base.range.value:.4g} s"
                self.note("slower", f"{row.where}: {times}", [row, *base.lines])


CHECKS = {name[6:].replace("_", "-"): run for name, run in vars(Checks).items() if name.startswith("check_")}
