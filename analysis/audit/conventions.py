# SPDX-License-Identifier: BSD-3-Clause
"""How reports compute a number from others, and the search for the way that gives a column.

A convention is a formula; the parameters of its function name what it needs. What a report does not say (which time,
which base, which message, how the last batch counts, a wrong unit) is a choice, and each choice that is further from
the words costs more.
"""
from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from itertools import product
from typing import Callable, Iterator, NamedTuple

from .published import BANDWIDTH, NAN, RATIO, TIME, Kind, Range, Row, exact, over, positive
from .study import SUM_OF_PARTS, BaseRule, Found, Options, Study, TimeSource, epoch_iterations

MOST_EVIDENCE = 64  # rows that a search uses
RULES = (BaseRule(), BaseRule(same_global_batch=True), BaseRule(same_mode=True), BaseRule(True, True))

# --- formulas: NaN where a time is not positive or nothing crosses a link -------------------------


def speedup(base: float, time: float) -> float:
    return positive(base) / positive(time)


def split(base: float, time: float, n: float) -> tuple[float, float]:
    """Derived compute T(1)/n and communication T(n) - T(1)/n."""
    compute = positive(base) / (n if n >= 1 else NAN)
    return compute, positive(time) - compute


def ring(n: float, size: float) -> float:
    """Bytes that each rank of a ring allreduce sends."""
    return 2 * (n - 1) / n * size if n > 1 else NAN


def all_links(n: float, size: float) -> float:
    """Bytes that all ranks of a ring allreduce send."""
    return 2 * (n - 1) * size if n > 1 else NAN


class Convention:
    """A formula; `value` takes seconds, bytes and counts, and returns seconds, bytes per second, 1 or 1/s.

    Its parameters: n devices, base_n of the base, time T(n), base T(1), the published compute, comm and speedup, size
    of a message, iterations and images of an epoch. `cost` is 0 for what the words say, more for what is further.
    """

    def __init__(self, cost: int, name: str, formula: str, value: Callable[..., float]):
        self.cost, self.name, self.formula, self.value = cost, name, formula, value
        self.needs = tuple(inspect.signature(value).parameters)


def _per_device(base: float, time: float, n: float, base_n: float) -> float:
    return speedup(base, time) * base_n / n


def _scaled(base: float, time: float, n: float, base_n: float) -> float:
    return n / base_n * speedup(base, time)


CONVENTIONS: dict[Kind, list[Convention]] = {kind: [] for kind in Kind}
for _kind, *_rest in (
    (Kind.SPEEDUP, 0, "speedup", "T(1)/T(n)", speedup),
    (Kind.SPEEDUP, 1, "weak-speedup", "n*T(1)/T(n)", _scaled),
    (Kind.SPEEDUP, 2, "efficiency", "T(1)/(n*T(n))", _per_device),
    (Kind.SPEEDUP, 2, "inverse", "T(n)/T(1)", lambda time, base: speedup(time, base)),
    (Kind.WEAK_SPEEDUP, 0, "weak-speedup", "n*T(1)/T(n)", _scaled),
    (Kind.WEAK_SPEEDUP, 1, "weak-efficiency", "T(1)/T(n)", speedup),
    (Kind.WEAK_SPEEDUP, 2, "inverse", "T(n)/T(1)", lambda time, base: speedup(time, base)),
    (Kind.EFFICIENCY, 0, "strong-efficiency", "T(1)/(n*T(n))", _per_device),
    (Kind.EFFICIENCY, 1, "weak-efficiency", "T(1)/T(n)", speedup),
    (Kind.EFFICIENCY, 1, "speedup-over-n", "published speedup / n", lambda speedup, n: speedup / n),
    (Kind.WEAK_EFFICIENCY, 0, "weak-efficiency", "T(1)/T(n)", speedup),
    (Kind.WEAK_EFFICIENCY, 1, "strong-efficiency", "T(1)/(n*T(n))", _per_device),
    (Kind.COMPUTE_TIME, 0, "derived", "T(1)/n", lambda base, n, base_n: split(base, 1, n / base_n)[0]),
    (Kind.COMPUTE_TIME, 1, "rest-of-epoch", "T(n) - published communication", lambda time, comm: time - comm),
    (Kind.COMPUTE_TIME, 1, "one-device", "T(1)", lambda base: base),
    (Kind.COMPUTE_TIME, 1, "whole-epoch", "T(n)", lambda time: time),
    (Kind.COMM_TIME, 0, "derived", "T(n) - T(1)/n", lambda base, time, n, base_n: split(base, time, n / base_n)[1]),
    (Kind.COMM_TIME, 1, "rest-of-epoch", "T(n) - published compute", lambda time, compute: time - compute),
    (Kind.COMM_TIME, 1, "above-one-device", "T(n) - T(1)", lambda time, base: time - base),
    (Kind.COMM_TIME, 2, "whole-epoch", "T(n)", lambda time: time),
    (Kind.BANDWIDTH, 0, "busbw", "2(n-1)/n*S*iterations / communication",
     lambda size, comm, n, iterations: ring(n, size) * iterations / positive(comm)),
    (Kind.BANDWIDTH, 0, "algbw", "S*iterations / communication",
     lambda size, comm, n, iterations: iterations * (size / positive(comm)) if n > 1 else NAN),
    (Kind.BANDWIDTH, 0, "message", "S / communication of the epoch",
     lambda size, comm, n: over(size, comm)),  # for n = 1 too
    (Kind.BANDWIDTH, 0, "ring-epoch", "2(n-1)/n*S / communication of the epoch",
     lambda size, comm, n: ring(n, size) / positive(comm)),
    (Kind.BANDWIDTH, 0, "total-volume", "2(n-1)*S*iterations / communication",
     lambda size, comm, n, iterations: all_links(n, size) * iterations / positive(comm)),
    (Kind.BANDWIDTH, 1, "total-volume-of-one", "2(n-1)*S / communication of the epoch",
     lambda size, comm, n: all_links(n, size) / positive(comm)),
    (Kind.VOLUME, 0, "ring", "2(n-1)/n*S", lambda size, n: ring(n, size)),
    (Kind.VOLUME, 0, "message", "S", lambda size, n: size if n > 1 else NAN),
    (Kind.VOLUME, 1, "ring-all", "2(n-1)/n*S*iterations", lambda size, n, iterations: ring(n, size) * iterations),
    (Kind.VOLUME, 1, "total", "2(n-1)*S", lambda size, n: all_links(n, size)),
    (Kind.VOLUME, 1, "total-all", "2(n-1)*S*iterations", lambda size, n, iterations: all_links(n, size) * iterations),
    (Kind.THROUGHPUT, 0, "images-per-epoch-time", "images / T(n)", lambda images, time: over(images, time)),
    (Kind.THROUGHPUT, 1, "n-times", "n*images / T(n)", lambda images, time, n: over(n * images, time)),
):  # fmt: skip
    CONVENTIONS[_kind].append(Convention(*_rest))

# --- choices --------------------------------------------------------------------------------------


class Message(NamedTuple):
    """Bytes that one gradient may have had; the cost is 0 for what the name of the model says."""

    text: str
    bytes: float = 0.0
    cost: int = 0


class Slip(NamedTuple):
    """A reading of a printed unit by which all values of a column are off by one factor: printed = true * factor."""

    text: str = ""
    factor: float = 1.0
    cost: int = 0


class Choice(NamedTuple):
    """Constants and sources with which a convention is evaluated."""

    cost: int = 0
    time: TimeSource = TimeSource()
    base: TimeSource = TimeSource()
    rule: BaseRule = BaseRule()
    message: Message = Message("")
    last: str = "counted"
    derived_comm: bool = False  # T(n) - T(1)/n instead of the published communication time
    slip: Slip = Slip()


# Parameters of gradsync's own networks and of torchvision's, by family and variant.
MODELS = {
    "resnet18": {"cifar": 11173962, "imagenet": 11689512, "imagenet stem, 10 classes": 11181642},
    "resnet34": {"imagenet": 21797672},
    "resnet50": {"imagenet": 25557032},
    "vgg11": {"bn cifar": 9231114, "cifar": 9225610, "bn imagenet": 132868840, "imagenet": 132863336},
    "vgg16": {"imagenet": 138357544},
    "alexnet": {"imagenet": 61100840},
    "lenet": {"cifar": 61780, "cifar, 400-120-84-10": 62006, "mnist": 61706},
}


def messages_of_model(model: str) -> list[Message]:
    """Candidates by the published name, 4 and 2 bytes a parameter, the likeliest first; none for an unknown model."""
    plain = "".join(c for c in model.lower() if c.isascii() and c.isalnum())
    family = next((name for name in MODELS if plain.startswith(name)), "")
    # What the name says beside the family decides: "resnet18-imagenet" is the ImageNet network first.
    beside, models = plain[len(family) :], MODELS.get(family, {}).items()

    def words_missed(one: tuple[str, int]) -> tuple[int, int]:
        words = one[0].replace(",", "").split()
        matched = sum(word in beside for word in words)
        return -matched, len(words) if matched else 0

    known = sorted(models, key=words_missed)
    return [
        Message(f"{count:,} parameters ({family} {variant}) of {width} B", float(count * width), (width == 2) + (i > 0))
        for width, (i, (variant, count)) in product((4, 2), enumerate(known))
    ]


def messages_for(row: Row, study: Study, options: Options) -> list[Message]:
    """Message sizes to try for the row's model; one without bytes if none is known."""
    if options.message_bytes:
        return [Message("--message-bytes", options.message_bytes)]
    if options.parameters:
        return [Message(f"{options.parameters:,} parameters (--parameters) of 4 B", 4 * options.parameters)]
    size, number = (study.same_setting(row, kind).range.value for kind in (Kind.MESSAGE_BYTES, Kind.PARAMETERS))
    if size == size:
        return [Message("published message size", size)]
    if number == number:
        return [Message("published parameter count of 4 B", 4 * number)]
    return messages_of_model(row.model) or [Message("unknown message")]


def slips_of(dimension: str, unit: str) -> list[Slip]:
    """Slips of a printed unit, none first."""
    slips, power = [Slip()], "KMG".find(unit[:1].upper() or "?") + 1
    if dimension == BANDWIDTH:
        binary = unit[1:2] == "i"
        factor = 1.024**power if binary else 1 / 1.024**power
        slips += [Slip(f"computed with powers of {'1,000' if binary else '1,024'}", factor, 1)] if power else []
        slips += [Slip("bits for bytes", 8, 2), Slip("bytes for bits", 0.125, 2)]
    steps = [(100, 2)] if dimension == RATIO else [(1000, 2), (1024, 2), (1000000, 3)]
    for factor, cost in [(60, 2)] * (dimension == TIME) + steps:
        slips.append(Slip(f"{factor:,} times too large", factor, cost))
        slips.append(Slip(f"{factor:,} times too small", 1 / factor, cost))
    return slips


def choices_for(study: Study, rows: list[Row], convention: Convention, options: Options) -> list[Choice]:
    """Every combination with which a convention may have made the column of these rows, the plainest first."""
    needs, sources = convention.needs, study.sources[rows[0].report]
    times = sources if "time" in needs else [None]
    bases = sources[:-1] or [SUM_OF_PARTS] if "base" in needs else [None]
    rules = RULES if "base" in needs else RULES[:1]
    messages = messages_for(rows[0], study, options) if "size" in needs else [Message("")]
    lasts = ("counted", "as a fraction", "left out") if "iterations" in needs else ("counted",)
    choices = []
    for time, base, rule, message, last in product(times, bases, rules, messages, lasts):
        is_other_base = base and base != (time or sources[0]) and not (time and time.sum)
        odd = bool(time and time != sources[0]) + bool(is_other_base) + sum(rule) + message.cost + (last != "counted")
        time = time or TimeSource()
        choices.append(Choice(convention.cost + odd, time, base or time, rule, message, last))
    if "comm" in needs and "size" in needs:  # instead of the published communication: what the epoch times leave for it
        for choice, source in product(tuple(choices), sources[:-1]):
            cost = choice.cost + (1 if source == sources[0] else 2)
            choices.append(choice._replace(cost=cost, time=source, base=source, derived_comm=True))
    return choices


# --- expectations ---------------------------------------------------------------------------------


def expect(study: Study, row: Row, convention: Convention, choice: Choice, options: Options) -> Found:
    """The number by a convention as it would be printed: evaluated at all corners of the intervals of what it needs."""
    needs, inputs = convention.needs, {}
    if "time" in needs:
        inputs["time"] = study.time_of(row, choice.time)
    if "base" in needs:
        inputs["base"] = study.base_time_of(row, choice.base, choice.rule)
        inputs["base_n"] = Found(exact(inputs["base"].devices))
    for name, kind in (("compute", Kind.COMPUTE_TIME), ("speedup", Kind.SPEEDUP), ("comm", Kind.COMM_TIME)):
        if name in needs:
            inputs[name] = study.same_setting(row, kind)
    if "comm" in needs and choice.derived_comm:
        inputs["comm"] = expect(study, row, CONVENTIONS[Kind.COMM_TIME][0], choice._replace(slip=Slip()), options)
    elif "comm" in needs and inputs["comm"].missing:
        inputs["comm"] = Found(missing="the communication time" + inputs["comm"].missing[2:])
    batch = row.devices * row.batch
    iterations = epoch_iterations(options.images, batch, choice.last) if batch else 0
    unknown_message = f"the message of model '{row.model}' is not known; give --parameters or --message-bytes"
    constants = {
        "n": (row.devices, "the number of devices is not given"),
        "size": (choice.message.bytes, unknown_message),
        "iterations": (iterations, "the batch per device is not given"),
        "images": (options.images, ""),
    }
    inputs |= {name: Found(exact(value)) if value else Found(missing=missing)
               for name, (value, missing) in constants.items() if name in needs}  # fmt: skip
    lines = sum((one.lines for one in inputs.values()), ())
    missing = next((one.missing for one in inputs.values() if one.missing), "")
    if missing:
        return Found(lines=lines, missing=missing)
    ranges = [inputs[name].range for name in needs]
    value = convention.value(*(one.value for one in ranges))
    if math.isnan(value):
        return Found(lines=lines, missing="the formula has no value for these numbers")
    ends = ({one.low: 0, one.high: 0} for one in ranges)
    corners = [value, *(corner for corner in (convention.value(*one) for one in product(*ends)) if corner == corner)]
    return Found(Range(value, min(corners), max(corners)).times(choice.slip.factor), lines)


AGREES, CUT_OFF, DIFFERS = "agrees", "agrees (cut off, not rounded)", "differs"


def compare(row: Row, expected: Range) -> str:
    """Whether the interval of the printed digits and the expectation's meet; or meet once the last digit is cut off."""
    printed = row.range
    slack = 1e-9 * abs(printed.value)  # of the arithmetic here
    if expected.high >= printed.low - slack and expected.low <= printed.high + slack:
        return AGREES
    cut_off = printed.value + row.step * row.unit.factor * (-1 if row.value < 0 else 1)
    low, high = min(printed.value, cut_off), max(printed.value, cut_off)
    return CUT_OFF if expected.high >= low - slack and expected.low <= high + slack else DIFFERS


# --- the search -----------------------------------------------------------------------------------


@dataclass
class Fit:
    """The convention that explains a column best; None where the kind has none."""

    convention: Convention | None = None
    choice: Choice = Choice()
    agree: int = 0
    recomputed: int = 0  # rows that it gives a number for
    lowest: float = NAN  # printed / expected
    highest: float = NAN
    distance: float = 0.0  # median of |ln(printed / expected)|
    tried: int = 0  # combinations of convention, constants and sources
    reproduces: bool = False  # enough of the rows agree, the more the odder the convention

    @property
    def near(self) -> bool:
        """A nearest convention that is further off than a factor of 2 is none."""
        return self.distance <= math.log(2)

    @property
    def explains(self) -> tuple:
        return self.agree - 0.5 * self.choice.cost, -self.choice.cost, self.recomputed, -self.distance

    @property
    def nearness(self) -> tuple:
        return self.recomputed, -(self.distance + 0.05 * self.choice.cost)


def _score(predictions: list[tuple[Row, Range]], convention: Convention, choice: Choice, slip: Slip) -> Fit:
    fit = Fit(convention, choice._replace(slip=slip, cost=choice.cost + slip.cost), recomputed=len(predictions))
    ratios = []
    for row, expected in predictions:
        printed = expected.times(slip.factor)
        # Digits that leave more than a fifth open agree with anything: no evidence for a convention.
        is_evidence = (printed.high - printed.low) / 2 <= 0.2 * abs(printed.value)
        fit.agree += is_evidence and compare(row, printed) != DIFFERS
        ratios.append(over(row.range.value, printed.value))
    distances = [abs(math.log(ratio)) if 0 < ratio < math.inf else math.inf for ratio in ratios]
    fit.lowest, fit.highest, fit.distance = min(ratios), max(ratios), sorted(distances)[len(distances) // 2]
    return fit


def _scores(study: Study, rows: list[Row], options: Options) -> Iterator[tuple[int, list[Fit]]]:
    """For every convention of the column with every constant and source: combinations, and a fit for each slip."""
    used = [row for row in rows if row.usable and not study.is_base(row)][:MOST_EVIDENCE]
    slips = slips_of(rows[0].unit.dimension, rows[0].unit_text)
    for convention in CONVENTIONS[rows[0].kind]:
        for choice in choices_for(study, rows, convention, options):
            expected = [(row, expect(study, row, convention, choice, options).range) for row in used]
            known = [(row, range) for row, range in expected if range.known]
            yield len(slips), [_score(known, convention, choice, slip) for slip in slips if known]


def search(study: Study, rows: list[Row], options: Options) -> Fit:
    """The convention that explains most of a column, half a row off for each step of cost.

    It must explain half of the rows, a tenth more for each step of cost, and from cost 2 on there must be three. Else
    the nearest one, without a slip and with little cost: for people.
    """
    first = next(iter(CONVENTIONS[rows[0].kind]), None)
    best, nearest, plain, tried, evidence = Fit(first), Fit(first), Fit(), 0, 0
    for combinations, fits in _scores(study, rows, options):
        tried += combinations
        for fit in fits:
            evidence = max(evidence, fit.recomputed)
            if fit.choice.cost == 0 and fit.recomputed > plain.recomputed:
                plain = fit
            if fit.agree > 0 and (not best.recomputed or fit.explains > best.explains):
                best = fit
            is_readable = not fit.choice.slip.text and fit.choice.cost <= 2
            if is_readable and (not nearest.recomputed or fit.nearness > nearest.nearness):
                nearest = fit
    needed = (0.5 + 0.1 * best.choice.cost) * evidence - 1e-9
    best.reproduces = best.agree > 0 and best.agree >= needed and (best.choice.cost < 2 or evidence >= 3)
    # With nothing near, what the words say is a better measure than the least wrong reading.
    if plain.recomputed and plain.recomputed == nearest.recomputed and not nearest.near:
        nearest = plain
    fit = best if best.reproduces else nearest
    fit.tried = tried
    if first and not fit.recomputed:  # the first convention with its first choice names what is missing
        fit.choice = choices_for(study, rows, fit.convention, options)[0]
    return fit


def implied_message(study: Study, rows: list[Row], convention: Convention, options: Options) -> Range:
    """Message sizes with which the convention gives every row; unknown if none or fewer than three are usable."""
    choice = Choice(message=Message("one byte", 1))
    per_byte = [(row.range, expect(study, row, convention, choice, options).range) for row in rows]
    used = [(printed, one) for printed, one in per_byte if one.low > 0]
    low = max((printed.low / one.high for printed, one in used), default=NAN)
    high = min((printed.high / one.low for printed, one in used), default=NAN)
    return Range((low + high) / 2, low, high) if len(used) >= 3 and low <= high else Range()
