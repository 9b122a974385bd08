# SPDX-License-Identifier: BSD-3-Clause
"""The page of an audit: what was found, report by report, as text and as Markdown."""
from __future__ import annotations

import textwrap
from typing import Iterator, NamedTuple

from .audit import JUDGMENTS, Audit, Column
from .checks import SEVERITIES
from .published import count_text
from .tables import Number, Table, as_markdown, as_text, constants_text, escaped, lines_text

MOST_VALUES, MOST_CELLS = 40, 8
WIDTH = 100


class Block(NamedTuple):
    kind: str  # title, heading, subheading, paragraph, item, subitem, table
    text: str
    lead: str = ""  # of an item, set off from its text
    table: Table | None = None


def _overview(audit: Audit) -> Block:
    rows = []
    for report in [*audit.study.by_report, *([""] if any(not one.report for one in audit.findings) else [])]:
        found = [audit.verdicts[row].judgment for row in audit.study.by_report.get(report, ())]
        found += [one.severity for one in audit.findings if one.report == report]
        rows.append([report or "across reports", *(Number(found.count(name)) for name in (*JUDGMENTS, *SEVERITIES))])
    note = "primary: measured, taken as printed; the others are derived, or of an unknown kind or unit"
    heads = ["<report", "primary", "agree", "differ", "cannot:cannot be recomputed", *SEVERITIES]
    return Block("table", "", table=Table("published-overview", "Numbers and findings", heads, [note], rows))


def _method(audit: Audit) -> str:
    options = audit.options
    message = "messages by the model's name (--parameters, --message-bytes)"
    if options.message_bytes:
        message = f"a message of {options.message_bytes:,} bytes (--message-bytes)"
    elif options.parameters:
        message = f"{options.parameters:,} parameters of 4 bytes (--parameters)"
    return (f"Each derived number was recomputed from the others under each known convention, with {options.images:,} "
            f"images in an epoch (--images) and {message}. It agrees where the printed digits allow it: half a unit of "
            "the last digit, of the number and of those it is made from, carried through the formula. A convention "
            "gives a column if at least half of its values agree, a tenth more for each step that it is away from what "
            "the words say.")  # fmt: skip


def _column(column: Column) -> Block:
    parts = [f"table {column.table}"] * bool(column.table) + [column.model] * bool(column.model)
    head = f"{column.quantity} ({', '.join([*parts, count_text(len(column.rows), 'value')])})"
    counts = column.counts
    tally = [f"{counts[name]} {name}{'s' if counts[name] == 1 else ''}" for name in ("agree", "differ") if counts[name]]
    tally += [f"{counts['cannot']} cannot be recomputed"] if counts["cannot"] else []
    return Block("item", f"{_fit_text(column)}. {', '.join(tally)}.", head)


def _fit_text(column: Column) -> str:
    fit = column.fit
    if not fit.convention:
        return "no convention is known for it"
    name = f"{fit.convention.name}, {fit.convention.formula}{constants_text(fit)}"
    if fit.reproduces:
        return name
    if not fit.recomputed:
        return f"what {fit.convention.name} needs is not published"
    how = "the nearest is" if fit.near else "by"
    return (f"no combination of {fit.tried:,} of convention, constants and sources gives it; {how} {name}: "
            f"printed / expected is {fit.lowest:.3g} to {fit.highest:.3g}")  # fmt: skip


def _values(audit: Audit, report: str) -> Iterator[Block]:
    """What differs, one by one; what cannot be recomputed only where it is not the whole column."""
    rows = [(row, audit.verdicts[row]) for row in audit.study.by_report.get(report, ())]
    rows = [one for one in rows if one[1].judgment == "differ" or (one[1].judgment == "cannot" and not one[0].derived)]
    if rows:
        yield Block("subheading", "Values that do not agree")
    for row, verdict in rows[:MOST_VALUES]:
        number = row.text if row.unit_text == "1" else row.printed
        yield Block("item", f"{row.quantity} of {row.run_text} is {number}; {verdict.text}", f"line {row.line}")
    if len(rows) > MOST_VALUES:
        yield Block("item", "all of them are in the table 'values'", f"{len(rows) - MOST_VALUES} more")


def _findings(audit: Audit, report: str) -> Iterator[Block]:
    findings = [one for one in audit.findings if one.report == report]
    if findings:
        yield Block("subheading", "Findings")
    elif report:
        yield Block("paragraph", "No finding beyond the values above.")
    for one in findings:
        texts = f"{one.what}. {one.why}{' ' if one.why else ''}Right if {one.right_if}."
        yield Block("item", f"{texts} ({lines_text(one.lines)})", f"{one.severity}, {one.check}")
        yield from (Block("subitem", cell) for cell in one.cells[:MOST_CELLS])
        if len(one.cells) > MOST_CELLS:
            yield Block("subitem", f"and {len(one.cells) - MOST_CELLS} more")


def page_of(audit: Audit) -> list[Block]:
    file = audit.study.file
    blocks = [Block("title", f"Published numbers of {file.name}, audited"), Block("paragraph", _method(audit))]
    blocks += [_overview(audit)] + [Block("item", remark, "note") for remark in file.remarks]
    for report in audit.study.by_report:
        columns = [_column(column) for column in audit.columns if column.report == report]
        made = [Block("subheading", "How its derived numbers were made")] if columns else []
        blocks += [Block("heading", report), *made, *columns, *_values(audit, report), *_findings(audit, report)]
    across = list(_findings(audit, ""))
    return blocks + [Block("heading", "Across reports")] * bool(across) + across


def _wrapped(text: str, first: str = "", rest: str = "") -> str:
    return textwrap.fill(text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False,
                         break_on_hyphens=False) + "\n"  # fmt: skip


def _text(block: Block) -> str:
    if block.kind in ("title", "heading"):
        return f"{block.text}\n{('=' if block.kind == 'title' else '-') * len(block.text)}\n"
    if block.kind == "item":
        return _wrapped(f"{block.lead}: {block.text}", "  - ", "    ")
    if block.kind == "subitem":
        return _wrapped(block.text, "      * ", "        ")
    return as_text(block.table) if block.table else _wrapped(block.text)


def _markdown(block: Block) -> str:
    text = escaped(block.text, "#")
    if block.kind == "item":
        return f"- **{escaped(block.lead, '#')}**: {text}\n"
    before = {"title": "# ", "heading": "## ", "subheading": "### ", "subitem": "  - "}
    return as_markdown(block.table) if block.table else f"{before.get(block.kind, '')}{text}\n"


def render(blocks: list[Block], markdown: bool) -> str:
    """Items of one list stand together, everything else apart."""
    text, before = "", None
    for block in blocks:
        in_list = before and before.kind.endswith("item") and block.kind.endswith("item")
        text += ("\n" if before and not in_list else "") + (_markdown(block) if markdown else _text(block))
        before = block
    return text
