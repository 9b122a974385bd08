# SPDX-License-Identifier: BSD-3-Clause
"""Published numbers, one a line of a CSV file, in any order of columns; all but quantity and value may be missing:

    report,table,model,mode,devices,batch_per_device,quantity,value,unit

A column of another name distinguishes rows (a number of nodes, a machine) and is not interpreted.
"""
from __future__ import annotations

import csv
import io
import math
import pkgutil
import re
from dataclasses import dataclass
from enum import Enum
from typing import Iterator, NamedTuple

NAN = math.nan
MOST_DIGITS, MOST = 100, 1e100  # of a number, so that products of several are numbers, too


class AuditError(Exception):
    """An error that a user can act on, with an exit code of sysexits.h and, where there is one, a fix."""

    def __init__(self, code: int, text: str, fix: str = ""):
        super().__init__(text)
        self.code, self.fix = code, fix


USAGE, BAD_DATA, NO_INPUT, INTERNAL, CANNOT_CREATE, INPUT_OUTPUT = 64, 65, 66, 70, 73, 74


def over(a: float, b: float) -> float:
    """a / b as IEEE 754 has it: a division by zero gives an infinity or NaN."""
    if b:
        return a / b
    return NAN if not a or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)


def positive(value: float) -> float:
    """A time or a count that cannot be 0; else NaN."""
    return value if value > 0 else NAN


def read_data(name: str) -> list[dict[str, str]]:
    """Rows of a CSV file of this package."""
    return list(csv.DictReader(pkgutil.get_data(__package__, name).decode().splitlines()))


# --- quantities and units -------------------------------------------------------------------------

TIME, BANDWIDTH, BYTES, RATE = "a time", "a bandwidth", "a size", "a rate"
RATIO, UNKNOWN = "a ratio or a count", "unknown"


class Kind(Enum):
    """What a quantity is: dimension, whether it is computed from others, and its names, in which N is a number."""

    EPOCH_TIME = (TIME, False, "epoch_time epoch_N_time time_per_epoch")
    TRAINING_TIME = (TIME, False, "training_time epoch_N_training_time")
    RUNNING_TIME = (TIME, False, "running_time epoch_N_running_time")
    ITERATION_TIME = (TIME, False, "iteration_time mean_iteration_time time_per_iteration")
    COMPUTE_TIME = (TIME, True, "compute_time computation_time")
    COMM_TIME = (TIME, True, "comm_time communication_time")
    SPEEDUP = (RATIO, True, "speedup strong_speedup")
    WEAK_SPEEDUP = (RATIO, True, "weak_speedup")
    EFFICIENCY = (RATIO, True, "efficiency strong_efficiency parallel_efficiency scaling_efficiency")
    WEAK_EFFICIENCY = (RATIO, True, "weak_efficiency")
    BANDWIDTH = (BANDWIDTH, True, "bandwidth busbw algbw bandwidth_utilization")
    THROUGHPUT = (RATE, True, "throughput images_per_s images_per_second samples_per_s samples_per_second")
    COMPUTE_SHARE = (RATIO, False, "compute_share")
    COMM_SHARE = (RATIO, False, "comm_share communication_share")
    OTHER_SHARE = (RATIO, False, "data_share optimizer_share other_share")
    LOSS = (RATIO, False, "loss loss_iter_N epoch_N_loss train_loss test_loss")
    ACCURACY = (RATIO, False, "accuracy epoch_N_accuracy train_accuracy test_accuracy")
    CORRECT = (RATIO, False, "test_correct")
    MESSAGE_BYTES = (BYTES, False, "message_bytes")
    VOLUME = (BYTES, True, "volume bytes_to_send")
    PARAMETERS = (RATIO, False, "parameters")
    OTHER = (UNKNOWN, False, "")

    def __init__(self, dimension: str, derived: bool, names: str):
        self.dimension, self.derived, self.names = dimension, derived, names.split()


EPOCH_TIMES = (Kind.EPOCH_TIME, Kind.TRAINING_TIME, Kind.RUNNING_TIME)
SHARES = (Kind.COMPUTE_SHARE, Kind.COMM_SHARE, Kind.OTHER_SHARE)
KIND_OF_NAME = {name: kind for kind in Kind for name in kind.names}


def kind_of(name: str) -> Kind:
    return KIND_OF_NAME.get(re.sub("[0-9]+", "N", name), Kind.OTHER)


def quantity_named(text: str) -> str:
    """Name of a quantity, which may be in any capitals, with - or blanks for _; an unknown one as it is."""
    name = re.sub("[- ]", "_", text.lower())
    return text if kind_of(name) is Kind.OTHER else name


class Unit(NamedTuple):
    """A printed unit: value * factor is in seconds, bytes per second, bytes, 1 or 1/s."""

    dimension: str = UNKNOWN
    factor: float = 1.0
    total: float = 0.0  # N of "of N"
    percent: bool = False


def _factors(*units: tuple[float, str]) -> dict[str, float]:
    return {name: factor for factor, names in units for name in names.split()}


TIMES = _factors((1e-9, "ns"), (1e-6, "us µs μs"), (1e-3, "ms"), (1, "s sec secs second seconds"),
                 (60, "min mins minute minutes"), (3600, "h hr hour hours"), (86400, "d"))  # fmt: skip
SIZES = _factors((1, "B byte bytes"), (1e3, "kB KB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB"),
                 (2**10, "KiB"), (2**20, "MiB"), (2**30, "GiB"), (2**40, "TiB"),
                 (1 / 8, "bit"), (125, "kbit kb"), (125e3, "Mbit Mb"), (125e6, "Gbit Gb"),
                 (125e9, "Tbit Tb"))  # fmt: skip
BITS_PER_SECOND = _factors((125, "kbps"), (125e3, "Mbps"), (125e6, "Gbps"), (125e9, "Tbps"))
RATES = re.compile("(images?|imgs?|samples?|1)/(s|sec|second)", re.IGNORECASE)


def parse_unit(text: str) -> Unit:
    """Unit of ms, MB/s, Gbit/s, %, "of 10000", images/s, Img/sec and others; of unknown dimension for anything else."""
    if text in ("%", "percent"):
        return Unit(RATIO, 0.01, percent=True)
    if text in ("", "1", "x", "×"):
        return Unit(RATIO)
    if text in TIMES:
        return Unit(TIME, TIMES[text])
    size = re.fullmatch("(.*?)(/s|/sec|/second|ps)", text)
    if text in BITS_PER_SECOND or (size and size[1] in SIZES):
        return Unit(BANDWIDTH, BITS_PER_SECOND.get(text) or SIZES[size[1]])
    if text in SIZES:
        return Unit(BYTES, SIZES[text])
    if RATES.fullmatch(text):
        return Unit(RATE)
    total = re.fullmatch(r"of\s+([0-9.eE+-]+)", text)
    value = parse_number(total[1]) if total else None
    return Unit(RATIO, total=value) if value and value > 0 else Unit()


NUMBER = re.compile(r"-?([0-9]+\.?([0-9]*)|\.([0-9]+))([eE]([+-]?[0-9]+))?")


def parse_number(text: str) -> float | None:
    """A decimal number; infinite where a double cannot hold it, None where the text is something else."""
    return float(text) if NUMBER.fullmatch(text) else None


def decimals_of(text: str) -> int:
    """Digits after the point, less a decimal exponent: 3 for 1.234, 1 for 1.234e2, -2 for 5e2."""
    match = NUMBER.fullmatch(text)
    return len(match[2] or match[3] or "") - max(-MOST_DIGITS, min(MOST_DIGITS, int(match[5] or 0)))


# --- rows -----------------------------------------------------------------------------------------


class Range(NamedTuple):
    """What is known of a number: its value and the interval that its printed digits leave open."""

    value: float = NAN
    low: float = NAN
    high: float = NAN

    @property
    def known(self) -> bool:
        return self.value == self.value

    def times(self, factor: float) -> Range:
        return Range(self.value * factor, self.low * factor, self.high * factor)

    def plus(self, other: Range) -> Range:
        return Range(self.value + other.value, self.low + other.low, self.high + other.high)


def exact(value: float) -> Range:
    return Range(value, value, value)


def count_text(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def setting_text(devices: int, batch: int) -> str:
    """ "2 devices at batch 32"."""
    text = count_text(devices, "device") if devices else "an unknown number of devices"
    return f"{text} at batch {batch}" if batch else text


@dataclass(eq=False)
class Row:
    """One published number. Devices and batch are 0 where the file does not give them."""

    line: int
    report: str
    table: str
    model: str
    mode: str  # "ddp:rank2" is what rank 2 printed
    devices: int
    batch: int
    quantity: str
    text: str
    unit_text: str
    extra: str  # "nodes=2" for columns that are not of the format
    value: float  # in the unit
    decimals: int  # digits after the point; negative where an exponent makes it coarser

    def __post_init__(self):
        self.kind, self.unit = kind_of(self.quantity), parse_unit(self.unit_text)
        self.usable = self.kind is not Kind.OTHER and self.kind.dimension == self.unit.dimension  # the unit fits
        self.derived = self.kind.derived  # computed from other numbers rather than measured
        self.step = float(f"1e{-self.decimals}")  # unit of the last printed digit
        # In base units, with half a step of the last digit on either side.
        self.range = Range(self.value, self.value - self.step / 2, self.value + self.step / 2).times(self.unit.factor)
        # Seconds of an epoch, and those of an epoch or an iteration; None for another quantity.
        self.epoch = self.range if self.usable and self.kind in EPOCH_TIMES else None
        self.time = self.range if self.usable and self.kind is Kind.ITERATION_TIME else self.epoch
        self.place = self.report, self.model, self.extra
        self.synchronization = self.mode.split(":rank")[0]
        self.where = setting_text(self.devices, self.batch)
        self.run_text = f"{self.mode}, {self.where}" if self.mode else self.where
        self.printed = f"{self.text} {self.unit_text}"

    def take_throughput_as_time(self, images: int) -> None:
        """A throughput was measured where no epoch time is printed, and gives one: images / throughput."""
        if self.usable and self.kind is Kind.THROUGHPUT:
            self.derived = False
            if self.range.low > 0:
                self.epoch = Range(images / self.range.value, images / self.range.high, images / self.range.low)
                self.time = self.epoch

    def shown_like(self, value: float) -> str:
        """A value in base units as this number is printed: in its unit, with its digits, at least three that count."""
        value /= self.unit.factor
        size = abs(value)
        leading = math.floor(math.log10(size)) if 0 < size < math.inf else 0
        decimals = min(max(self.decimals, 2 - leading, 0), 12)
        return f"{value:.3g}" if size >= 1e15 else f"{value:.{decimals}f}"


# --- reading --------------------------------------------------------------------------------------

NAMES = ("report", "table", "model", "mode", "devices", "batch_per_device", "quantity", "value", "unit")
FORMAT_FIX = f"the columns are {','.join(NAMES)}, in any order"
QUOTE_FIX = "put a field that holds commas or quotes in quotes, and double the quotes inside it"
TWICE_FIX = "remove the wrong one, or tell them apart by the table's name or a column of your own"
NUMBER_FIX = "write numbers like 12.5 or 3e-4, without thousands separators; leave out what was not published"


class PublishedFile:
    """The rows of a CSV text, and remarks: columns that are missing or unknown, lines that repeat others.

    `name` is for messages, `batch` the batch per device where the file gives none, 0 for none. Raises AuditError with
    "name:line" for malformed CSV, a header without quantity and value or with a name twice, a row of another length,
    a value that is not a finite number, devices or a batch that are not whole numbers from 1, and two values for one
    thing.
    """

    def __init__(self, text: str, name: str, batch: int = 0):
        self.name, self.batch, self.rows, self.remarks = name, batch, [], []
        self._seen: dict[tuple, Row] = {}
        records = self._records(text.removeprefix("\ufeff"))
        line, header = next(records, (1, []))
        if not header:
            self._refuse(1, "the file is empty", FORMAT_FIX)
        titles = self._titles(line, header)
        for at, fields in records:
            if len(fields) != len(header):
                self._refuse(at, f"{len(fields)} fields under a header of {len(header)}", QUOTE_FIX)
            self._add(self._row(at, dict(zip(titles, fields))))
        if not self.rows:
            self._refuse(line, "there is a header and no row")

    def _refuse(self, line: int, why: str, fix: str = FORMAT_FIX) -> None:
        raise AuditError(BAD_DATA, f"{self.name}:{line}: {why}", fix)

    def _records(self, text: str) -> Iterator[tuple[int, list[str]]]:
        """Line and fields of each record, by RFC 4180; blanks around fields are left out, and empty lines."""
        if "\0" in text:
            self._refuse(1 + text.count("\n", 0, text.index("\0")), "this is not a text file")
        reader, line = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True, strict=True), 1
        try:
            for fields in reader:
                if any(fields) or len(fields) > 1:
                    yield line, [field.strip(" \t") for field in fields]
                line = reader.line_num + 1
        except csv.Error as error:
            is_open = "unexpected end" in str(error)
            why = "the quote that opens a field here is never closed" if is_open else f"this is not CSV: {error}"
            self._refuse(line if is_open else reader.line_num, why, QUOTE_FIX)

    def _titles(self, line: int, header: list[str]) -> list[str]:
        named = [title or f"column {i}" for i, title in enumerate(header, 1)]
        titles = [title.lower() if title.lower() in NAMES else title for title in named]
        lower = [title.lower() for title in titles]
        twice = next((title for i, title in enumerate(header) if lower[i] in lower[:i]), None)
        if twice is not None:
            self._refuse(line, f"the header names '{twice}' twice", FORMAT_FIX)
        for name in ("quantity", "value"):
            if name not in titles:
                self._refuse(line, f"the header has no column '{name}'", FORMAT_FIX)
        self.remarks += [f"the file has no column '{name}'" for name in NAMES if name not in titles]
        own = [title for title in titles if title not in NAMES]
        self.remarks += [f"column '{title}' is not of the format; it only tells rows apart" for title in own]
        return titles

    def _row(self, line: int, fields: dict[str, str]) -> Row:
        texts = {name: fields.get(name, "") for name in NAMES}
        for name in ("devices", "batch_per_device"):
            if texts[name] and not (re.fullmatch("[0-9]{1,18}", texts[name]) and int(texts[name])):
                self._refuse(line, f"{name} is '{texts[name]}', not a whole number from 1")
        for name, fix in (("quantity", FORMAT_FIX), ("value", "leave out what was not published")):
            if not texts[name]:
                self._refuse(line, f"the {name} is missing", fix)
        about = texts["value"].startswith("~")  # "~45": ten units of the last digit
        digits = texts["value"][about:].removeprefix("+")
        value = parse_number(digits)
        if value is None or (value and not 1 / MOST <= abs(value) <= MOST):
            why = "not a finite number" if value is None else f"beyond {MOST:g} or 1/{MOST:g}"
            self._refuse(line, f'the value "{digits}" is {why}', NUMBER_FIX)
        extra = ", ".join(f"{name}={text}" for name, text in fields.items() if name not in NAMES and text)
        devices, batch = int(texts["devices"] or 0), int(texts["batch_per_device"] or self.batch)
        report, decimals = texts["report"] or "(no report named)", decimals_of(digits) - about
        return Row(line, report, texts["table"], texts["model"], texts["mode"], devices, batch,
                   quantity_named(texts["quantity"]), texts["value"], texts["unit"], extra, value, decimals)  # fmt: skip

    def _add(self, row: Row) -> None:
        first = self._seen.setdefault((row.place, row.table, row.mode, row.quantity, row.devices, row.batch), row)
        if first is row:
            self.rows.append(row)
        elif (first.range.value, first.unit.dimension) == (row.range.value, row.unit.dimension):
            self.remarks.append(f"line {row.line} repeats line {first.line} and was left out")
        else:
            why = f"{row.printed} here, but {first.printed} on line {first.line} for the same {row.quantity}"
            self._refuse(row.line, f"{why} of the same row", TWICE_FIX)
