# SPDX-License-Identifier: BSD-3-Clause
"""The command line of gradsync-audit."""
from __future__ import annotations

import argparse
import difflib
import errno
import os
import pathlib
import re
import signal
import stat
import sys
import tempfile

from . import published as p
from .audit import Audit
from .page import page_of, render
from .published import AuditError, PublishedFile
from .study import Options, Study
from .tables import TABLES, as_csv, as_json, as_markdown, as_object, as_text, json_text, make_table

PROGRAM = "gradsync-audit"
PURPOSE = "Finds errors in published numbers of scaling studies."
EXAMPLES = (f"{PROGRAM} results/published/reports.csv", f"{PROGRAM} reports.csv --table audit --format markdown",
            f"{PROGRAM} reports.csv --table values,findings --format csv --output audit")  # fmt: skip
EXIT_CODES = {0: "success", 64: "usage or configuration", 65: "invalid data", 66: "input missing",
              70: "internal error of gradsync", 73: "cannot create an output", 74: "input/output error"}  # fmt: skip
FORMATS = {"text": ("txt", as_text), "markdown": ("md", as_markdown), "csv": ("csv", as_csv), "json": ("json", as_json)}
FILE_FIX = f"{PROGRAM} FILE, a CSV of {','.join(p.NAMES)}; docs/numbers.md describes it"


# --- options --------------------------------------------------------------------------------------


def whole(least: int):
    def read(text: str) -> int:
        if not re.fullmatch("[0-9]{1,13}", text):
            raise argparse.ArgumentTypeError(f'"{text}" is not a whole number')
        if not least <= int(text) <= 10**12:
            raise argparse.ArgumentTypeError(f'"{text}" is out of range: a whole number from {least} to {10**12}')
        return int(text)

    return read


def size(text: str) -> int:
    match = re.fullmatch("([0-9]+(?:[.][0-9]+)?) ?([KMGT]iB|[kKMGT]B|B|)", text)
    if not match:
        raise argparse.ArgumentTypeError(f'"{text}" is not a size such as 4MiB or 25MB')
    return int(float(match[1]) * p.SIZES[match[2] or "B"])


def names(known: tuple[str, ...]):
    def read(text: str) -> list[str]:
        for name in text.split(","):
            if name not in (*known, "all"):
                near = difflib.get_close_matches(name, known, 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise argparse.ArgumentTypeError(f"'{name}' is none of {', '.join(known)}, all{hint}")
        return [name for name in known if name in text.split(",") or "all" in text.split(",")]

    return read


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        raise AuditError(p.USAGE, re.sub("^argument ", "", message), "--help lists the options")


def make_parser() -> Parser:
    usual = Options()
    parser = Parser(PROGRAM, usage=argparse.SUPPRESS, add_help=False, allow_abbrev=False,
                    formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=26, width=80))  # fmt: skip
    parser.add_argument("files", nargs="*", metavar="FILE", help=argparse.SUPPRESS)
    add = parser.add_argument
    add("--table", metavar="NAME,...", type=names(tuple(TABLES)), default=list(TABLES)[:-1],
        help=f"tables to make: {', '.join(TABLES)}, all; several as a list with commas [all but numbers]")
    add("--images", metavar="N", type=whole(1), default=usual.images, help=f"images of one epoch [{usual.images}]")
    add("--parameters", metavar="N", type=whole(0), default=0,
        help="parameters of the models, 4 bytes each; 0: by the models' names [0]")
    add("--message-bytes", metavar="SIZE", type=size, default=0,
        help="bytes of one gradient; takes precedence over --parameters [0]")
    add("--batch", metavar="N", type=whole(0), default=0, help="batch per device where FILE gives none [0]")
    add("--fastest-link", metavar="SIZE", type=size, default=usual.fastest_link,
        help="the most bytes per second that one device can send; more is called impossible [900GB]")
    add("--format", metavar="NAME,...", type=names(tuple(FORMATS)), default=["text"],
        help=f"formats of the tables: {', '.join(FORMATS)}, all; several as a list with commas [text]")
    add("--output", metavar="DIR", type=pathlib.Path,
        help="folder for <table>.<format>; text goes to standard output as well. Without it all formats go there")
    add("--list", action="store_true", help="list the tables, and end")
    add("--quiet", action="store_true", help="print warnings and errors only")
    add("--json", metavar="FILE", help="write the results as JSON; -: print them, and nothing else")
    for name, what in (("help", "the purpose, examples and options"), ("help-all", "the same with the exit codes"),
                       ("help-man", "the manual page"), ("help-bash", "the completion for bash"),
                       ("version", "the version")):
        add(*(["-h"] if name == "help" else []), f"--{name}", action="store_true", help=f"print {what}")  # fmt: skip
    return parser


def help_text(parser: Parser, codes: bool) -> str:
    examples = "".join(f"  {example}\n" for example in EXAMPLES)
    text = f"{PURPOSE}\n\nUsage: {PROGRAM} [OPTION...] FILE\n\nExamples\n{examples}\n{parser.format_help()}"
    exit_codes = "".join(f"  {code:2}  {what}\n" for code, what in EXIT_CODES.items())
    return f"{text}\nExit codes\n{exit_codes}" if codes else text


def manual_page(parser: Parser, version: str) -> str:
    dashes = [f'.TH {PROGRAM} 1 "" "{version.split()[0]}"', ".SH NAME", f"{PROGRAM} - {PURPOSE}", ".SH SYNOPSIS", ".nf",
              f"{PROGRAM} [OPTION...] FILE", ".fi", ".SH EXAMPLES", ".nf", *EXAMPLES, ".fi", ".SH OPTIONS"]  # fmt: skip
    for option in parser._actions[1:]:
        dashes += [".TP", f".B {', '.join(option.option_strings)} {option.metavar or ''}".rstrip(), option.help]
    dashes += [".SH EXIT STATUS"] + [line for code, what in EXIT_CODES.items() for line in (".TP", f".B {code}", what)]
    return dashes[0] + "\n" + "".join(line.replace("-", r"\-") + "\n" for line in dashes[1:])


def completion(parser: Parser) -> str:
    options = " ".join(option.option_strings[-1] for option in parser._actions[1:])
    return f"complete -o default -W '{options}' {PROGRAM}\n"


# --- files ----------------------------------------------------------------------------------------


def read_text(path: str) -> str:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode) and not path.startswith("/dev/"):  # a shell's <(…)
                raise AuditError(p.BAD_DATA, f"'{path}' is not a regular file", FILE_FIX)
            os.set_blocking(file.fileno(), True)
            text = file.read().decode(errors="surrogateescape")
            return re.sub(r"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", lambda control: rf"\x{ord(control[0]):02x}", text)
    except OSError as error:
        code = p.INPUT_OUTPUT if error.errno == errno.EIO else p.NO_INPUT
        raise AuditError(code, f"cannot read '{path}': {error.strerror}", FILE_FIX) from error


def require_writable(path: pathlib.Path) -> None:
    """What is refused before the work."""
    try:
        if path.parent.stat() and os.path.lexists(path) and not stat.S_ISREG(path.stat().st_mode):
            raise AuditError(p.CANNOT_CREATE, f"cannot write '{path}': it is no regular file", "name another file")
    except OSError as error:
        raise AuditError(p.CANNOT_CREATE, f"cannot write '{path}': {error.strerror}", "name a file in a folder that is there") from error


def write_text(path: pathlib.Path, text: str) -> None:
    """Writes a file that appears whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("wb", prefix=f"{path.name}.tmp-", dir=path.parent, delete=False) as file:
            try:
                file.write(text.encode(errors="surrogateescape"))
                file.flush()
                mask = os.umask(0o077)
                os.umask(mask)
                os.fchmod(file.fileno(), 0o666 & ~mask)
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as error:
        raise AuditError(p.CANNOT_CREATE, f"cannot write '{path}': {error.strerror}", "choose another file") from error


# --- the program ----------------------------------------------------------------------------------


def run(options: argparse.Namespace, version: str) -> str:
    """Audits the file, writes what goes into files, and returns what goes to standard output."""
    if len(options.files) != 1:
        raise AuditError(p.USAGE, f"{len(options.files)} files were named, and one is audited", FILE_FIX)
    if options.json and options.json != "-":
        require_writable(pathlib.Path(options.json))
    file = PublishedFile(read_text(options.files[0]), options.files[0], options.batch)
    file.name = pathlib.Path(file.name).name  # tables name no folder
    constants = Options(options.images, options.parameters, options.message_bytes, options.fastest_link)
    audit = Audit(Study(file, constants.images), constants)
    with_page = "audit" in options.table
    printed, tables = [], [make_table(audit, name) for name in options.table if name != "audit"]
    for name, (extension, render_table) in FORMATS.items():
        if name not in options.format:
            continue
        texts = {table.name: render_table(table) for table in tables}
        if with_page and name in ("text", "markdown"):  # the page holds these tables
            texts = {key: text for key, text in texts.items() if key not in ("published-columns", "published-findings")}
            texts = {"audit": render(page_of(audit), name == "markdown"), **texts}
        for key, text in texts.items() if options.output else ():
            write_text(options.output / f"{key}.{extension}", text)
        printed += texts.values() if name == "text" or not options.output else ()
    objects = [as_object(table) for table in tables]
    document = json_text({"program": PROGRAM, "version": version, "tables": objects})
    if options.json and options.json != "-":
        write_text(pathlib.Path(options.json), document)
    return document if options.json == "-" else "" if options.quiet else "\n".join(printed)


def answer(parser: Parser, options: argparse.Namespace, version: str) -> str:
    if options.help or options.help_all:
        return help_text(parser, options.help_all)
    if options.help_man:
        return manual_page(parser, version)
    if options.help_bash:
        return completion(parser)
    if options.version:
        return f"{PROGRAM} {version}\n"
    if options.list:
        return "tables (--table)\n" + "".join(f"  {name:<16}{spec['description']}\n" for name, spec in TABLES.items())
    return run(options, version)


def message(error: AuditError) -> str:
    """One that fits a screen, without control characters."""
    text = f"{PROGRAM}: {error}" + (f"\n  fix: {error.fix}" if error.fix else "")
    text = re.sub(r"\S{200,}", lambda word: f"{word[0][:160]}… ({len(word[0])} characters)", text)
    return "".join(c if c.isprintable() or c == "\n" else rf"\x{ord(c) % 256:02x}" for c in text)


def main(arguments: list[str], version: str) -> int:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        parser = make_parser()
        text = answer(parser, parser.parse_args(arguments), version)
        try:
            if sys.stdout is None:
                raise OSError(errno.EBADF, "it is closed")
            sys.stdout.buffer.write(text.encode(errors="surrogateescape"))
            sys.stdout.flush()
        except OSError as error:
            if sys.stdout is not None:  # when Python ends it writes what is buffered, which fails again, with a code of its own
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            why = f"cannot write to standard output: {error.strerror}"
            raise AuditError(p.INPUT_OUTPUT, why, "give it a place with room, or --output DIR") from error
        return 0
    except AuditError as error:
        print(message(error), file=sys.stderr)
        return error.code
    except Exception as error:  # noqa: BLE001  # a fault of this program has an exit code of its own
        print(message(AuditError(p.INTERNAL, f"internal error: {error!r}")), file=sys.stderr)
        return p.INTERNAL
