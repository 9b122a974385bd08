# SPDX-License-Identifier: BSD-3-Clause
"""The rows of a file, and the look-ups that formulas need: the time of a setting, and the base of its speedup."""
from __future__ import annotations

import math
from collections import defaultdict
from functools import lru_cache
from typing import NamedTuple

from .published import EPOCH_TIMES, Kind, PublishedFile, Range, Row, kind_of, setting_text

WITHOUT_EXCHANGE = ("", "single", "none", "serial", "baseline", "sequential")
MOST_SOURCES = 12


class Options(NamedTuple):
    """What a published table does not say and a user may know; 0 for what is not given."""

    images: int = 50000  # of one epoch: CIFAR-10's training set
    parameters: int = 0  # of every model, for unknown or other ones
    message_bytes: int = 0  # of one gradient; takes precedence over parameters
    fastest_link: int = 900 * 10**9  # bytes per second in one direction: NVLink 5


class TimeSource(NamedTuple):
    """Which number of a report is taken as the time of an epoch."""

    table: str = ""
    quantity: str = ""
    throughput: bool = False  # images / the number
    sum: bool = False  # compute_time + comm_time of the same setting instead

    @property
    def text(self) -> str:
        number = f"{'images / ' if self.throughput else ''}{self.quantity}"
        return "compute_time + comm_time" if self.sum else f"{number} of table {self.table}" if self.table else number

    @property
    def clock(self) -> Kind | None:
        """Of training without loading, or of the whole run; None for a time that is called neither."""
        kind = kind_of(self.quantity)
        return kind if kind in (Kind.TRAINING_TIME, Kind.RUNNING_TIME) else None


SUM_OF_PARTS = TimeSource(sum=True)


class BaseRule(NamedTuple):
    """How the base of a speedup is chosen."""

    same_global_batch: bool = False  # else: the same batch per device
    same_mode: bool = False  # else: a mode without exchange if there is one


class Found(NamedTuple):
    """A number that was looked up or computed, and the lines it rests on; if there is none, why."""

    range: Range = Range()
    lines: tuple[int, ...] = ()
    devices: int = 0
    missing: str = ""


def source_of(row: Row) -> TimeSource:
    return TimeSource(row.table, row.quantity, row.kind is Kind.THROUGHPUT)


def _directness(row: Row) -> int:
    """Order of sources: speedup tables hold the times of speedups; then by how directly the name says it."""
    rank = 0 if row.table == "speedup" else 10
    rank += {Kind.TRAINING_TIME: 1, Kind.RUNNING_TIME: 2, Kind.THROUGHPUT: 4}.get(row.kind, 0)
    rank += 3 if any(c.isdigit() for c in row.quantity) else 0
    return rank + ("_1_" in row.quantity)  # the first epoch warms up


class Study:
    """A published file with its look-ups. The order of rows is that of the file."""

    def __init__(self, file: PublishedFile, images: int = 50000):
        self.file, self.rows = file, file.rows
        self.by_report, self.cells = defaultdict(list), defaultdict(list)
        self.fewest: dict[tuple, int] = {}  # devices with a time, by place
        timed = {row.place for row in self.rows if row.usable and row.kind in EPOCH_TIMES}
        for row in self.rows:
            self.by_report[row.report].append(row)
            self.cells[row.place, row.devices, row.batch].append(row)
            if row.place not in timed:
                row.take_throughput_as_time(images)
            if row.time and row.devices:
                self.fewest[row.place] = min(row.devices, self.fewest.get(row.place, row.devices))
        self.sources = {report: self._list_sources(report) for report in self.by_report}

    def _list_sources(self, report: str) -> list[TimeSource]:
        """The epoch times that a report prints, the most direct first; the sum of the parts last."""
        firsts = {source_of(row): row for row in reversed(self.by_report[report]) if row.epoch}
        ordered = sorted(firsts.values(), key=lambda row: (_directness(row), row.line))
        return [source_of(row) for row in ordered[: MOST_SOURCES - 1]] + [SUM_OF_PARTS]

    def setting_of(self, row: Row) -> list[Row]:
        """Rows that differ from `row` in table and quantity only, itself included."""
        return [other for other in self.cells[row.place, row.devices, row.batch] if other.mode == row.mode]

    @lru_cache(maxsize=None)
    def same_setting(self, row: Row, kind: Kind) -> Found:
        """Another number of the row's setting, the row's table first; the row itself never."""
        others = [other for other in self.setting_of(row) if other.kind is kind and other.usable and other is not row]
        best = next((other for other in others if other.table == row.table), others[0] if others else None)
        return Found(best.range, (best.line,)) if best else Found(missing=f"it is not published for {row.where}")

    @lru_cache(maxsize=None)
    def time_of(self, row: Row, source: TimeSource) -> Found:
        """The epoch time of the row's own setting."""
        if not row.devices:
            return Found(missing="the number of devices is not given")
        if source.sum:
            compute, comm = self.same_setting(row, Kind.COMPUTE_TIME), self.same_setting(row, Kind.COMM_TIME)
            if compute.range.known and comm.range.known:
                return Found(compute.range.plus(comm.range), compute.lines + comm.lines)
        for other in self.setting_of(row):
            if other.time and source_of(other) == source:
                return Found(other.time, (other.line,))
        return Found(missing=f"no epoch time of {row.where} is published")

    @lru_cache(maxsize=None)
    def base_time_of(self, row: Row, source: TimeSource, rule: BaseRule = BaseRule()) -> Found:
        """The epoch time that a speedup of the row is measured against, with its devices."""
        devices, batch = self.fewest.get(row.place), row.batch
        if source.sum or devices is None:
            return Found(missing="no epoch time of one device is published")
        if devices > 1 and row.devices == devices:
            return Found(missing=f"no epoch time of fewer than {devices} devices is published")
        if rule.same_global_batch:
            if not batch or not row.devices:
                return Found(missing="the global batch is not given")
            batch, rest = divmod(batch * row.devices, devices)
            batch = 0 if rest else batch
        rows = self.cells.get((row.place, devices, batch), ())
        rows = [other for other in rows if other.time and source_of(other) == source]
        modes = (row.mode,) if rule.same_mode else WITHOUT_EXCHANGE
        best = next((other for other in rows if other.mode in modes), rows[-1] if rows and not rule.same_mode else None)
        if best is None:
            return Found(missing=f"no epoch time of {setting_text(devices, batch)} is published")
        return Found(best.time, (best.line,), best.devices)

    def is_base(self, row: Row) -> bool:
        """Whether the row's devices are those of the base: a speedup of 1 proves no convention."""
        return row.devices == self.fewest.get(row.place, 0)

    def any_time_of(self, row: Row) -> Found:
        """The best epoch time of the row's setting: that of the first source that has one."""
        times = [self.time_of(row, source) for source in self.sources[row.report][:-1]]
        return next((time for time in times if time.range.known), times[-1] if times else Found())

    def any_base_time_of(self, row: Row) -> Found:
        bases = [self.base_time_of(row, source) for source in self.sources[row.report]]
        return next((base for base in bases if base.range.known), bases[-1])

    def settings(self) -> list[Row]:
        """The first row of each setting: report, model, mode, devices, batch."""
        firsts: dict[tuple, Row] = {}
        for row in self.rows:
            firsts.setdefault((row.place, row.mode, row.devices, row.batch), row)
        return list(firsts.values())


def epoch_iterations(images: float, global_batch: float, last: str = "counted") -> float:
    """Iterations of an epoch, at least 1; the last batch is "counted", "left out" or taken "as a fraction"."""
    exact = images / global_batch if global_batch else math.nan
    if last == "as a fraction" or math.isnan(exact):
        return exact
    return float(max(1, math.ceil(exact) if last == "counted" else math.floor(exact)))
