# SPDX-License-Identifier: BSD-3-Clause
"""Tables of an audit and their formats. tables.csv has their titles, columns and notes; column names are those of
gradsync-report's tables where the same is meant."""
from __future__ import annotations

import json
import math
import re
from typing import Iterator, NamedTuple, Union

from .audit import Audit
from .conventions import CONVENTIONS, Fit, messages_for, speedup, split
from .published import NAN, Kind, Row, over, positive, read_data
from .study import BaseRule, Found, TimeSource, source_of

TABLES = {one["name"]: one for one in read_data("tables.csv")}


class Number(NamedTuple):
    """A number with so many digits for people and all of them for machines; NaN is n/a."""

    value: float
    decimals: int = 0

    def __str__(self) -> str:
        return "n/a" if math.isnan(self.value) else f"{self.value:.{self.decimals}f}"

    @property
    def machine(self) -> float | int | None:
        if not math.isfinite(self.value):
            return None
        return int(self.value) if float(self.value).is_integer() and abs(self.value) < 1e15 else self.value


Cell = Union[Number, str]


def count(number: float) -> Number:
    """A count; 0 is not known."""
    return Number(float(number or NAN))


def significant(value: float) -> Number:
    """A number of any size with at least four digits that count."""
    if not abs(value) > 0:
        return Number(value)
    return Number(value, 2 if abs(value) >= 10 else min(9, 3 + max(0, -math.floor(math.log10(abs(value))))))


class Table(NamedTuple):
    """Rows below heads. `columns` are "name" or "name:head", with < before it where texts are read from the left."""

    name: str
    title: str
    columns: list[str]
    notes: list[str]
    rows: list[list[Cell]]

    @property
    def names(self) -> list[str]:
        return [column.lstrip("<").split(":")[0] for column in self.columns]

    @property
    def heads(self) -> list[str]:
        return [re.sub("^[a-z0-9_]+:", "", column.lstrip("<")) for column in self.columns]

    @property
    def lefts(self) -> list[bool]:
        return [column[0] == "<" for column in self.columns]


# --- formats --------------------------------------------------------------------------------------


def escaped(text: object, also: str = "") -> str:
    """A text with what Markdown would take as markup made harmless."""
    return re.sub(rf"([|\\`*_<>\[\]{also}])", r"\\\1", re.sub("[\r\n]", " ", str(text)))


def as_text(table: Table) -> str:
    rows = [table.heads] + [[str(cell) for cell in row] for row in table.rows]
    widths = [max(map(len, column)) for column in zip(*rows)]
    rows.insert(1, ["-" * width for width in widths])
    fits = [str.ljust if left else str.rjust for left in table.lefts]
    lines = ["  ".join(fit(cell, width) for fit, cell, width in zip(fits, row, widths)) for row in rows]
    return "\n".join([table.title, *map(str.rstrip, lines), *(f"  {note}" for note in table.notes)]) + "\n"


def as_markdown(table: Table) -> str:
    lines = [f"| {' | '.join(map(escaped, row))} |" for row in [table.heads, *table.rows]]
    lines.insert(1, f"| {' | '.join(':--' if left else '--:' for left in table.lefts)} |")
    notes = [f"- {escaped(note)}" for note in table.notes]
    return "\n".join([f"### {escaped(table.title)}", "", *lines, *([""] if notes else []), *notes]) + "\n"


def as_csv(table: Table) -> str:
    def text(cell: Cell) -> str:
        if isinstance(cell, Number):
            return "" if cell.machine is None else str(cell.machine)
        return '"' + cell.replace('"', '""') + '"' if re.search('[,"\r\n]', cell) else cell

    return "".join(",".join(map(text, row)) + "\n" for row in [table.names, *table.rows])


def as_object(table: Table) -> dict:
    rows = [[cell.machine if isinstance(cell, Number) else cell for cell in row] for row in table.rows]
    return {"schema_version": 1, "name": table.name, "title": table.title, "notes": table.notes,
            "columns": [{"name": name, "head": head} for name, head in zip(table.names, table.heads)],
            "rows": [dict(zip(table.names, row)) for row in rows]}  # fmt: skip


def json_text(value: object) -> str:
    """JSON, with U+FFFD for each byte of a file that is no UTF-8."""
    return re.sub("[\ud800-\udfff]", "\ufffd", json.dumps(value, indent=1, ensure_ascii=False)) + "\n"


def as_json(table: Table) -> str:
    return json_text(as_object(table))


def lines_text(lines: set[int]) -> str:
    """ "line 5", "lines 3-5, 9"."""
    ends = [line for line in sorted(lines) if line + 1 not in lines]
    begins = [line for line in sorted(lines) if line - 1 not in lines]
    parts = [f"{begin}-{end}" if begin < end else f"{end}" for begin, end in zip(begins, ends)]
    return f"{'line' if len(lines) == 1 else 'lines'} {', '.join(parts)}"


def constants_text(fit: Fit) -> str:
    """What a fit rests on: " (T(n) = epoch_time of table speedup; S = ...)"."""
    needs, choice = fit.convention.needs, fit.choice
    last = choice.last if choice.last.startswith("as") else f"last batch {choice.last}"
    parts = {
        f"T(n) = {choice.time.text}": "time" in needs,
        f"T(1) = {choice.base.text}": "base" in needs,
        "base of the same global batch": "base" in needs and choice.rule.same_global_batch,
        "base of the same mode": "base" in needs and choice.rule.same_mode,
        f"S = {choice.message.text}": "size" in needs,
        f"iterations with the {last}": "iterations" in needs,
        f"communication = T(n) - T(1)/n from {choice.time.text}": choice.derived_comm,
        choice.slip.text: choice.slip.text,
    }
    texts = [text for text, holds in parts.items() if holds]
    return f" ({'; '.join(texts)})" if texts else ""


# --- the tables: rows by the name of the table ----------------------------------------------------


def make_table(audit: Audit, name: str) -> Table:
    spec = TABLES[name]
    rows = ROWS[name](audit)
    return Table(f"published-{name}", spec["title"].format(name=audit.study.file.name), spec["columns"].split("|"),
                 spec["notes"].split("|"), list(rows))  # fmt: skip


def _labels(row: Row) -> list[Cell]:
    setting = [row.report, row.table, row.model, row.mode, count(row.devices), count(row.batch)]
    return [Number(row.line), *setting, row.quantity]


def _values(audit: Audit) -> Iterator[list[Cell]]:
    for row, verdict in audit.verdicts.items():
        decimals = min(max(row.decimals, 0), 15)
        if verdict.judgment != "primary":
            expected = Number(verdict.expected.value / row.unit.factor, max(2, decimals))
            yield [*_labels(row), Number(row.value, decimals), row.unit_text, expected, verdict.text]


def _numbers(audit: Audit) -> Iterator[list[Cell]]:
    for row, verdict in audit.verdicts.items():
        base = Number(row.range.value if row.usable else NAN, 12)
        value = Number(row.value, min(max(row.decimals, 0), 15))
        kind = row.kind.name.lower()
        yield [*_labels(row), value, row.unit_text, Number(row.decimals), kind, base, verdict.text]


def _columns(audit: Audit) -> Iterator[list[Cell]]:
    for one in audit.columns:
        fit, convention = one.fit, one.fit.convention
        given = "none known" if not convention else convention.name if fit.reproduces else "none"
        nearest = convention.name if convention and fit.recomputed and not fit.reproduces else ""
        yield [one.report, one.table, one.model, one.quantity, one.unit, Number(len(one.rows)), given, nearest,
               convention.formula + constants_text(fit) if convention else "",
               *(Number(one.counts[judgment]) for judgment in ("agree", "differ", "cannot")),
               Number(fit.lowest, 3), Number(fit.highest, 3), Number(fit.tried)]  # fmt: skip


def _findings(audit: Audit) -> Iterator[list[Cell]]:
    for one in audit.findings:
        report, lines = one.report or "(across reports)", lines_text(one.lines)
        yield [report, one.severity, one.check, lines, one.what, "; ".join(one.cells), one.why, one.right_if]


def _setting(row: Row) -> list[Cell]:
    return [row.report, row.mode, row.model, *map(count, (row.devices, row.batch, row.devices * row.batch))]


class Epoch:
    """What one table of a report prints of one epoch of one setting, in base units; NaN for what it does not."""

    NAMES = {Kind.EPOCH_TIME: "epoch", Kind.TRAINING_TIME: "training", Kind.RUNNING_TIME: "running",
             Kind.ITERATION_TIME: "iteration", Kind.THROUGHPUT: "rate", Kind.LOSS: "loss", Kind.ACCURACY: "accuracy",
             Kind.CORRECT: "test_accuracy"}  # fmt: skip

    def __init__(self, row: Row, number: str):
        self.row, self.number, self.of = row, number, {}

    def add(self, row: Row) -> None:
        part = re.match("train_|test_|", row.quantity)[0] if row.kind in (Kind.LOSS, Kind.ACCURACY) else ""
        self.of[part + self.NAMES[row.kind]] = row.range.value / (row.unit.total if row.kind is Kind.CORRECT else 1)

    def get(self, *names: str) -> float:
        """The first of these that is printed."""
        return next((self.of[name] for name in names if name in self.of), NAN)

    @property
    def accuracy(self) -> float:
        return self.get("test_accuracy", "accuracy", "train_accuracy")


def _printed_epochs(audit: Audit) -> list[Epoch]:
    epochs: dict[tuple, Epoch] = {}
    for row in (row for row in audit.study.rows if row.usable and row.kind in Epoch.NAMES and not row.derived):
        is_count = row.kind is Kind.CORRECT and not row.unit.total
        if not is_count and not row.quantity.startswith("loss_iter"):
            number = "".join(re.findall("[0-9]", row.quantity))
            key = row.place, row.table, row.mode, row.devices, row.batch, number
            epochs.setdefault(key, Epoch(row, number)).add(row)
    return list(epochs.values())


def _epochs(audit: Audit) -> Iterator[list[Cell]]:
    epochs, images, bases = _printed_epochs(audit), audit.options.images, {}
    for one in sorted(epochs, key=lambda one: -one.row.devices * one.row.batch):
        if one.row.devices * one.row.batch and one.accuracy == one.accuracy:
            bases[one.row.report, one.row.table, one.row.model, one.number] = one  # the smallest batch remains
    for one in epochs:
        row, iterations = one.row, audit.iterations_of(one.row)
        base = bases.get((row.report, row.table, row.model, one.number), one)
        rate = one.of.get("rate", over(images, one.get("running", "epoch")))
        remarks = ["first epoch: warm-up"] if one.number == "1" else []
        if row.devices * row.batch >= images:
            remarks.append(f"full batch: one step over all {images} images, as any larger batch")
        learning = [Number(scale * one.get(part + name), decimals) for part in ("", "train_", "test_")
                    for name, scale, decimals in (("loss", 1, 4), ("accuracy", 100, 2))]  # fmt: skip
        times = [one.get("epoch"), one.get("training"), one.get("running"), one.get("iteration") * iterations]
        base_batch = base.row.devices * base.row.batch if one.accuracy == one.accuracy else 0
        yield [*_setting(row), row.table, one.number or "-", Number(iterations), *map(significant, times),
               Number(rate, 1), *learning, count(base_batch),
               Number(100 * (one.accuracy - base.accuracy), 2), "; ".join(remarks)]  # fmt: skip


def _speedups(audit: Audit) -> Iterator[list[Cell]]:
    study = audit.study
    for row in (row for row in study.rows if row.time and row.devices):
        time, itself = row.time, study.is_base(row)
        for strong in (True,) if itself else (True, False):
            base = Found(time, (), row.devices) if itself else study.base_time_of(row, source_of(row), BaseRule(strong))
            if not base.range.known:
                continue
            ratio, is_weak = speedup(base.range.value, time.value), row.kind is Kind.ITERATION_TIME and not strong
            efficiency = ratio if is_weak else ratio * base.devices / row.devices
            published = [study.same_setting(row, kind).range.value for kind in (Kind.SPEEDUP, Kind.WEAK_SPEEDUP)]
            remark = "the base itself" if itself else "SUPER-LINEAR" if efficiency > 1 + 1e-9 else ""
            scaled = row.devices * ratio if is_weak and base.devices == 1 else NAN
            yield [*_setting(row), "strong" if strong else "weak", Number(base.devices),
                   f"{row.quantity} ({row.table})", significant(time.value), significant(base.range.value),
                   Number(ratio, 3), Number(100 * efficiency, 1), Number(scaled, 3),
                   Number(next((one for one in published if one == one), NAN), 2), remark]  # fmt: skip


def _times_of(audit: Audit, row: Row) -> tuple[Found, Found, TimeSource]:
    """T(n), T(1) and their source, one quantity of one table; with T(n) alone where no source has both."""
    study, sources = audit.study, audit.study.sources[row.report][:-1]
    times = [(study.time_of(row, source), study.base_time_of(row, source), source) for source in sources]
    known = [one for one in times if one[0].range.known]
    return next((one for one in known if one[1].range.known), known[0] if known else (Found(), Found(), TimeSource()))


def _splits(audit: Audit) -> Iterator[list[Cell]]:
    rates = {one.name: one.value for one in CONVENTIONS[Kind.BANDWIDTH]}
    for row in (row for row in audit.study.settings() if row.devices > 1):
        time, base, source = _times_of(audit, row)
        printed = {one.kind: one.range.value for one in reversed(audit.study.setting_of(row)) if one.usable}
        kinds = Kind.COMPUTE_TIME, Kind.COMM_TIME, Kind.BANDWIDTH
        compute, comm, bandwidth = (printed.get(kind, NAN) for kind in kinds)
        if all(math.isnan(one) for one in (time.range.value, base.range.value, compute, comm, bandwidth)):
            continue
        iterations, size = audit.iterations_of(row), messages_for(row, audit.study, audit.options)[0].bytes or NAN
        derived = split(base.range.value, time.range.value, row.devices / base.devices) if base.devices else (NAN, NAN)
        times = (time.range.value, compute, comm, base.range.value, *derived)
        ms = [Number(1e3 * one / iterations, 3) for one in times]
        all_of = (("busbw", 1e9, (iterations,)), ("message", 1e9, ()), ("ring-epoch", 2**30, ()),
                  ("total-volume", 1e9, (iterations,)))  # fmt: skip
        links = [significant(rates[name](size, positive(one), row.devices, *extra) / unit)
                 for name, unit, extra in all_of for one in (comm, derived[1])]  # fmt: skip
        remarks = {
            "NEGATIVE derived communication: faster than 1/n of one rank": derived[1] < 0,
            "published parts above the epoch": compute + comm > 1.01 * time.range.value,
            "the message is not known: --parameters": math.isnan(size),
        }
        share, of = Number(100 * over(compute + comm, time.range.value), 1), source.text if base.range.known else "n/a"
        yield [*_setting(row), Number(iterations), *ms[:3], share, of, *ms[3:], significant(size / 2**20), *links,
               significant(bandwidth / 1e9), "; ".join(text for text, holds in remarks.items() if holds)]  # fmt: skip


ROWS = {"values": _values, "columns": _columns, "findings": _findings, "epochs": _epochs, "speedup": _speedups,
        "split": _splits, "numbers": _numbers}  # fmt: skip
