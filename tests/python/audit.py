#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of gradsync-audit: reading, conventions, checks, tables, the page, options. Prints PASS, FAIL or SKIP a case.

usage: audit.py [NAME...]    (run by tests/run; needs nothing but Python and the built launcher)
"""
import csv
import io
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile
import traceback
import unittest

ROOT = pathlib.Path(__file__).absolute().parents[2]
sys.path.insert(0, str(ROOT / "analysis"))
sys.dont_write_bytecode = True

from audit.audit import Audit  # noqa: E402
from audit.conventions import messages_of_model  # noqa: E402
from audit.page import page_of, render  # noqa: E402
from audit.published import BANDWIDTH, BYTES, RATE, RATIO, TIME, UNKNOWN, AuditError, Kind, PublishedFile  # noqa: E402
from audit.published import kind_of, parse_unit, quantity_named  # noqa: E402
from audit.study import Options, Study, epoch_iterations  # noqa: E402
from audit.tables import ROWS, TABLES, as_csv, as_markdown, lines_text, make_table  # noqa: E402

PROGRAM = ROOT / "build/bin/gradsync-audit"
REPORTS = ROOT / "results/published/reports.csv"
HEADER = "report,table,model,mode,devices,batch_per_device,quantity,value,unit\n"
SETTINGS = ((2, 50), (4, 50), (2, 100), (4, 100))


class Paper:
    """Writes small published tables: a setting, then numbers as they would be printed."""

    def __init__(self):
        self.text, self.setting = HEADER, ""

    def at(self, mode, devices, batch):
        self.setting = f"r,t,resnet18,{mode},{devices},{batch}"
        return self

    def say(self, quantity, value, unit="s"):
        return self.raw(f"{self.setting},{quantity},{value},{unit}")

    def raw(self, *lines):
        self.text += "".join(f"{line}\n" for line in lines)
        return self

    def each(self, quantity, values, unit):
        """A number for each of the four settings with several devices."""
        for (devices, batch), value in zip(SETTINGS, values.split()):
            self.at("ddp", devices, batch).say(quantity, value, unit)
        return self


def times():
    """T(1) = 100 s; T(2) = 60 s, T(4) = 40 s at batch 50, T(2) = 52 s, T(4) = 28 s at batch 100.

    50,000 images are 1,000, 500 and 250 iterations at batch 50, and half of that at 100.
    """
    paper = Paper()
    for mode, devices, batch, seconds in (("single", 1, 50, 100), ("ddp", 2, 50, 60), ("ddp", 4, 50, 40),
                                          ("single", 1, 100, 100), ("ddp", 2, 100, 52), ("ddp", 4, 100, 28)):  # fmt: skip
        paper.at(mode, devices, batch).say("epoch_time", f"{seconds}.0")
    return paper


def read(text, name="t.csv", batch=0):
    return PublishedFile(text, name, batch)


class Result:
    """What the audit says of a paper."""

    def __init__(self, paper, **options):
        text = paper if isinstance(paper, str) else paper.text
        self.options = Options(**options)
        self.audit = Audit(Study(read(text), self.options.images), self.options)

    def verdict(self, quantity, devices, batch):
        return next(verdict.text for row, verdict in self.audit.verdicts.items()
                    if (row.quantity, row.devices, row.batch) == (quantity, devices, batch))  # fmt: skip

    def fit(self, quantity):
        return next(column.fit for column in self.audit.columns if column.quantity == quantity)

    def finding(self, part):
        """The finding that holds `part`, in one line with its severity; "" if there is none."""
        for one in self.audit.findings:
            text = f"{one.severity}: {one.what}: {'; '.join(one.cells)}. {one.why} Right if {one.right_if}."
            if part in text:
                return text
        return ""

    def rows(self, table):
        return list(csv.DictReader(io.StringIO(as_csv(make_table(self.audit, table)))))

    def page(self, markdown=False):
        return render(page_of(self.audit), markdown)


def row_of(rows, **cells):
    return next(row for row in rows if all(row[name] == str(value) for name, value in cells.items()))


class Reading(unittest.TestCase):
    def refused(self, text):
        with self.assertRaises(AuditError) as caught:
            read(text)
        self.assertEqual(caught.exception.code, 65)
        return str(caught.exception)

    def with_row(self, row):
        return self.refused(f"{HEADER}{row}\n")

    def test_rfc_4180_with_a_byte_order_mark_and_any_line_end(self):
        file = read('\ufeffquantity,value,unit,"no""te"\r\n\r\n epoch_time , 1.5,s,"two\nlines"\rloss,2,,\r\n')
        self.assertEqual([(row.line, row.quantity, row.value, row.extra) for row in file.rows],
                         [(3, "epoch_time", 1.5, 'no"te=two\nlines'), (5, "loss", 2.0, "")])  # fmt: skip

    def test_malformed_csv_names_its_line(self):
        self.assertIn('t.csv:2: the quote that opens a field here', self.refused('quantity,value\n1,"open\n2'))
        self.assertIn("t.csv:2: ", self.refused('quantity,value\n"x" y,1'))
        self.assertIn("t.csv:2: this is not a text file", self.refused("quantity,value\na\0b,1"))

    def test_columns_in_any_order_and_capitals_missing_and_own(self):
        file = read("Unit,VALUE,quantity,nodes\ns,12.5,epoch_time,2\n")
        row = file.rows[0]
        self.assertEqual((row.value, row.decimals, row.devices, row.extra, row.kind), (12.5, 1, 0, "nodes=2", Kind.EPOCH_TIME))
        self.assertEqual(len(file.remarks), 7)  # six columns that are missing and one that is unknown
        self.assertIn("'nodes' is not of the format", file.remarks[-1])

    def test_what_is_wrong_is_named_with_its_line(self):
        self.assertIn("t.csv:1: the file is empty", self.refused(""))
        self.assertIn("there is a header and no row", self.refused(HEADER))
        self.assertIn("the header has no column 'value'", self.refused("quantity,unit\nx,1\n"))
        self.assertIn("the header has no column 'quantity'", self.refused("quantity;value;unit\nx;1;s\n"))
        self.assertIn("names 'Value' twice", self.refused("quantity,value,Value\nx,1,2\n"))
        self.assertIn("t.csv:2: 8 fields under a header of 9", self.with_row("r,t,m,single,1,32,epoch_time,1.5"))
        for number in ("abc", "nan", "inf", "1e999", "1,5", "12s", "0x10", "1 000", "--1", "ERROR", "1_0"):
            self.assertIn(f't.csv:2: the value "{number}"', self.with_row(f'r,t,m,single,1,32,epoch_time,"{number}",s'))
        self.assertIn("t.csv:2: the value is missing", self.with_row("r,t,m,single,1,32,epoch_time,,s"))
        self.assertIn("t.csv:2: the quantity is missing", self.with_row("r,t,m,single,1,32,,1,s"))
        for devices, batch in (("0", "32"), ("two", "32"), ("1", "-3"), ("1", "9" * 20)):
            self.assertIn("not a whole number from 1", self.with_row(f"r,t,m,single,{devices},{batch},epoch_time,1,s"))

    def test_a_line_given_twice_is_left_out_and_two_values_for_one_thing_are_refused(self):
        row = "r,t,m,single,1,32,epoch_time,1.5,s\n"
        file = read(HEADER + row + row)
        self.assertEqual((len(file.rows), file.remarks), (1, ["line 3 repeats line 2 and was left out"]))
        self.assertEqual(len(read(HEADER + row + "r,t,m,single,1,32,epoch_time,1500,ms\n").rows), 1)
        self.assertIn("t.csv:3: 1.6 s here, but 1.5 s on line 2", self.refused(HEADER + row + row.replace("1.5", "1.6")))
        self.assertEqual(len(read(HEADER + row + "r,t,m,single,2,32,epoch_time,1.6,s\n").rows), 2)

    def test_digits_leave_half_a_step_open(self):
        def range_of(value, unit):
            return read(f"{HEADER}r,t,m,single,1,32,epoch_time,{value},{unit}\n").rows[0].range

        self.assertAlmostEqual(range_of("1.25", "s").low, 1.245)
        self.assertAlmostEqual(range_of("1.25", "s").high, 1.255)
        self.assertAlmostEqual(range_of("250", "ms").low, 0.2495)
        self.assertAlmostEqual(range_of("2", "min").high, 150)
        self.assertAlmostEqual(range_of("3e2", "s").low, 250)
        self.assertAlmostEqual(range_of("1.50e-1", "s").high, 0.1505)
        self.assertEqual(range_of("0e-99999", "s").value, 0)
        self.assertAlmostEqual(range_of("-7", "s").low, -7.5)
        self.assertAlmostEqual(range_of("~45", "s").high, 50)

    def test_units(self):
        known = {
            TIME: {"s": 1, "ms": 1e-3, "µs": 1e-6, "min": 60},
            BANDWIDTH: {"MB/s": 1e6, "MiB/s": 2**20, "GiB/s": 2**30, "Gbit/s": 1.25e8, "Gb/s": 1.25e8, "Gbps": 1.25e8, "GBps": 1e9},
            BYTES: {"MiB": 2**20},
            RATIO: {"%": 0.01, "1": 1, "": 1, "x": 1, "×": 1, "of 10000": 1},
            RATE: dict.fromkeys(["images/s", "img/s", "img/sec", "Img/sec", "images/sec", "samples/sec", "samples/s", "1/s"], 1),
            UNKNOWN: dict.fromkeys(["parsec", "of", "of many", "of 0", "/s", "ps", "GB/h"], 1),
        }
        for dimension, factors in known.items():
            for text, factor in factors.items():
                self.assertEqual(parse_unit(text)[:2], (dimension, factor), text)
        self.assertEqual(parse_unit("of 10000").total, 10000)

    def test_quantities_whose_numbers_count_as_n(self):
        kinds = {"epoch_17_time": Kind.EPOCH_TIME, "Epoch-2-Time": Kind.EPOCH_TIME, "comm_time": Kind.COMM_TIME,
                 "loss_iter_40": Kind.LOSS, "epoch__time": Kind.OTHER, "": Kind.OTHER}  # fmt: skip
        self.assertEqual({name: kind_of(quantity_named(name)) for name in kinds}, kinds)


class Conventions(unittest.TestCase):
    def test_speedup_is_one_of_three_ratios(self):
        plain = Result(times().each("speedup", "1.67 2.50 1.92 3.57", "1"))
        self.assertEqual((plain.fit("speedup").reproduces, plain.fit("speedup").convention.name), (True, "speedup"))
        self.assertEqual(plain.verdict("speedup", 4, 100), "agrees")
        scaled = Result(times().each("speedup", "3.33 10.00 3.85 14.29", "1"))
        self.assertEqual(scaled.fit("speedup").convention.name, "weak-speedup")
        self.assertIn("By T(1)/T(n) it is 1.67 to 3.57", scaled.finding("contradicted: the speedup is n*T(1)/T(n)"))
        self.assertEqual(Result(times().each("speedup", "0.833 0.625 0.962 0.893", "1")).fit("speedup").convention.name, "efficiency")

    def test_efficiency_in_percent_or_as_a_fraction_strong_or_weak(self):
        percent = Result(times().each("efficiency", "83.3 62.5 96.2 89.3", "%"))
        self.assertEqual(percent.fit("efficiency").convention.name, "strong-efficiency")
        self.assertEqual(percent.verdict("efficiency", 2, 100), "agrees")
        weak = Result(times().each("weak_efficiency", "1.67 2.50 1.92 3.57", "1"))
        self.assertEqual(weak.fit("weak_efficiency").convention.name, "weak-efficiency")
        self.assertIn("impossible", weak.finding("efficiency above 1"))

    def test_derived_compute_and_communication(self):
        result = Result(times().each("compute_time", "50.0 25.0 50.0 25.0", "s").each("comm_time", "10.0 15.0 2.0 3.0", "s"))
        self.assertEqual(result.fit("compute_time").convention.formula, "T(1)/n")
        self.assertEqual(result.fit("comm_time").convention.formula, "T(n) - T(1)/n")
        for setting in SETTINGS:
            self.assertEqual((result.verdict("compute_time", *setting), result.verdict("comm_time", *setting)), ("agrees",) * 2)
        self.assertEqual(result.audit.findings, [])

    def test_one_value_of_a_column_that_differs(self):
        result = Result(times().each("speedup", "1.67 2.60 1.92 3.57", "1"))
        self.assertEqual(result.verdict("speedup", 4, 50), "differs: expected 2.50")
        self.assertIn("2.60 needs T(1) = 104 s", result.finding("do not give"))  # 2.60 * 40 s

    def test_cut_off_instead_of_rounded(self):
        paper = Paper().at("single", 1, 50).say("epoch_time", "100.000")
        paper.at("ddp", 2, 50).say("epoch_time", "60.000").say("speedup", "1.66", "1")  # 1.6667
        self.assertEqual(Result(paper).verdict("speedup", 2, 50), "agrees (cut off, not rounded)")

    def test_the_rounding_of_primary_numbers_is_carried_through(self):
        # 10/3 with one digit each: T(1) in [9.5, 10.5], T(2) in [2.5, 3.5], so 2.71 to 4.20.
        for value, verdict in (("2.72", "agrees"), ("4.19", "agrees"), ("2.69", "differs: expected 3.33"), ("4.22", "differs")):
            paper = Paper().at("single", 1, 32).say("epoch_time", "10").at("ddp", 2, 32).say("epoch_time", "3")
            self.assertTrue(Result(paper.say("speedup", value, "1")).verdict("speedup", 2, 32).startswith(verdict), value)

    def test_bandwidth_with_44695848_bytes_for_resnet18(self):
        # Communication 10, 15, 2 and 3 s; iterations 500, 250, 250 and 125; n 2, 4, 2, 4.
        for name, slip, unit, values in (
            ("message", "", "MB/s", "4.46958 2.97972 22.3479 14.8986"),  # S/t
            ("ring-epoch", "", "MB/s", "4.46958 4.46958 22.3479 22.3479"),  # 2(n-1)/n = 1 and 1.5
            ("algbw", "", "GB/s", "2.23479 0.744931 5.58698 1.86233"),  # 500*S/10, 250*S/15, 250*S/2, 125*S/3
            ("busbw", "", "GB/s", "2.23479 1.11740 5.58698 2.79349"),
            ("total-volume", "", "GB/s", "4.46958 4.46958 11.1740 11.1740"),  # twice and six times algbw
            ("message", "1,000 times too large", "GB/s", "4.46958 2.97972 22.3479 14.8986"),
            ("message", "computed with powers of 1,024", "MB/s", "4.26253 2.84169 21.3127 14.2084"),
            ("message", "computed with powers of 1,024", "Gbit/s", "0.0333010 0.0222007 0.166505 0.111003"),
        ):
            paper = times().each("comm_time", "10.0000 15.0000 2.0000 3.0000", "s").each("bandwidth", values, unit)
            fit = Result(paper).fit("bandwidth")
            self.assertEqual((fit.reproduces, fit.convention.name, fit.choice.slip.text), (True, name, slip))

    def test_message_size_from_the_options_from_the_file_or_unknown(self):
        paper = Paper()
        for devices, comm, rate in ((2, "1.000", "8.000"), (4, "2.000", "4.000")):
            paper.raw(f"r,t,mynet,ddp,{devices},64,comm_time,{comm},s", f"r,t,mynet,ddp,{devices},64,bandwidth,{rate},MB/s")

        def verdict(**options):
            return Result(paper, **options).verdict("bandwidth", 4, 64)

        self.assertEqual(verdict(parameters=2000000), "agrees")  # 8 MB over 1 and 2 s
        self.assertIn("differs", verdict(parameters=2000000, message_bytes=16000000))
        self.assertEqual(verdict(), "cannot be recomputed: the message of model 'mynet' is not known; give --parameters or "
                         "--message-bytes")  # fmt: skip
        paper.raw("r,t,mynet,ddp,2,64,parameters,2000000,1", "r,t,mynet,ddp,4,64,parameters,2000000,1")
        self.assertEqual(verdict(), "agrees")

    def test_an_unknown_message_that_would_give_the_column(self):
        paper = Paper()  # 30 MB over 1, 2 and 3 s by `message`; not resnet18's 44.7 MB
        for batch, comm, rate in ((10, "1.000", "30.00"), (20, "2.000", "15.00"), (40, "3.000", "10.00")):
            paper.at("ddp", 2, batch).say("comm_time", comm).say("bandwidth", rate, "MB/s")
        self.assertIn("message has 30", Result(paper).finding("no known message"))

    def test_throughput_beside_epoch_times_is_images_over_the_epoch(self):
        paper = times().each("images_per_s", "833.3 1250.0 961.5 1785.7", "images/s")
        self.assertEqual(Result(paper).fit("images_per_s").convention.name, "images-per-epoch-time")
        self.assertFalse(Result(paper, images=60000).fit("images_per_s").reproduces)

    def test_known_models_by_name(self):
        for name, count in (("resnet18", 11173962), ("ResNet-18", 11173962), ("resnet18-imagenet", 11689512), ("vgg11", 9231114),
                            ("vgg11_bn_imagenet", 132868840),
                            ("lenet", 61780)):  # fmt: skip
            self.assertEqual(messages_of_model(name)[0].bytes, 4 * count, name)
        self.assertEqual(messages_of_model("transformer"), [])

    def test_iterations_of_an_epoch(self):
        self.assertEqual([epoch_iterations(50000, 64, last) for last in ("counted", "left out", "as a fraction")], [782, 781, 781.25])
        self.assertEqual(epoch_iterations(50000, 1e9, "left out"), 1)
        self.assertTrue(math.isnan(epoch_iterations(50000, 0)))

    def test_two_bytes_to_send_and_an_approximate_number(self):
        # 2(n-1)/n of 44,695,848 B: 0.0447 and 0.0670 GB.
        result = Result(times().each("bytes_to_send", "0.0447 0.0670 0.0447 0.0690", "GB"))
        self.assertEqual(result.verdict("bytes_to_send", 4, 50), "agrees")
        self.assertEqual(result.verdict("bytes_to_send", 4, 100), "differs: expected 0.0670")
        paper = Paper().at("ddp", 2, 32).say("compute_share", "~85", "%").say("comm_share", "~11", "%")
        paper.at("ddp", 4, 32).say("compute_share", "85", "%").say("comm_share", "11", "%")
        text = Result(paper).finding("do not sum")
        self.assertIn("4 devices at batch 32", text)
        self.assertNotIn("2 devices at batch 32", text)


class Throughputs(unittest.TestCase):
    """Reports that print images/s and no times."""

    @staticmethod
    def horovod(speedup="1.50", efficiency="75", unit="img/sec"):
        paper = Paper().at("horovod", 1, 64).say("throughput", "1000", unit)
        return paper.at("horovod", 2, 64).say("throughput", "1500", unit).say("speedup", speedup, "x").say("efficiency", efficiency, "%")

    def test_speedup_and_efficiency_are_ratios_of_measured_throughputs(self):
        for unit in ("images/s", "Img/sec", "samples/s"):
            result = Result(self.horovod(unit=unit))
            self.assertEqual(result.verdict("throughput", 2, 64), "primary")
            self.assertEqual((result.verdict("speedup", 2, 64), result.verdict("efficiency", 2, 64)), ("agrees", "agrees"))
            self.assertEqual(result.fit("speedup").choice.time.text, "images / throughput of table t")

    def test_wrong_ones_are_found(self):
        self.assertIn("differs: expected 1.50", Result(self.horovod(speedup="1.60")).verdict("speedup", 2, 64))
        self.assertIn("differs: expected 75", Result(self.horovod(efficiency="60")).verdict("efficiency", 2, 64))

    def test_speedups_that_are_not_printed_are_derived(self):
        paper = Paper().raw("r,t,m,ddp,1,,throughput,758.90,Img/sec", "r,t,m,ddp,4,,throughput,2836.54,Img/sec")
        row = row_of(Result(paper).rows("speedup"), ranks=4)
        self.assertAlmostEqual(float(row["speedup"]), 2836.54 / 758.90)
        self.assertAlmostEqual(float(row["efficiency_percent"]), 100 * 2836.54 / 758.90 / 4)

    def test_throughputs_that_rise_too_much_or_fall(self):
        paper = Paper().at("single", 1, 64).say("throughput", "1000", "img/s").at("ddp", 2, 64).say("throughput", "2500", "img/s")
        self.assertIn("20 s against 50 s", Result(paper).finding("fall faster than devices"))
        paper = Paper().at("single", 1, 64).say("throughput", "1000", "img/s").at("ddp", 2, 64).say("throughput", "800", "img/s")
        self.assertIn("throughput of 62.5 s against 50 s", Result(paper).finding("slower than one"))

    def test_a_throughput_of_nothing_gives_no_time(self):
        paper = Paper().at("single", 1, 64).say("throughput", "0", "img/s").at("ddp", 2, 64).say("throughput", "9", "img/s")
        self.assertIn("no epoch time", Result(paper.say("speedup", "2", "1")).verdict("speedup", 2, 64))

    def test_an_approximate_epoch_beside_a_throughput(self):
        # 218.53 / ~122.4 is 1.785, and 1.78 / 2 is 89 %.
        paper = Paper().at("single", 1, 128).say("epoch_time", "218.53").say("speedup", "1.00", "×")
        paper.at("ddp", 2, 64).say("epoch_time", "~122.4").say("speedup", "1.78", "×").say("efficiency", "89", "%")
        result = Result(paper)
        self.assertEqual((result.verdict("speedup", 2, 64), result.verdict("efficiency", 2, 64)), ("agrees", "agrees"))


class Findings(unittest.TestCase):
    def test_an_unknown_number_of_devices_is_not_more_than_one(self):
        for seconds, finding in (("60.0", "faster than devices"), ("160.0", "slower than one")):
            paper = Paper().at("single", 1, 50).say("epoch_time", "100.0").raw(f"r,t,resnet18,ddp,,50,epoch_time,{seconds},s")
            self.assertEqual(Result(paper).finding(finding), "")

    def test_unknown_quantities_and_units_and_what_was_not_published(self):
        paper = times().at("ddp", 2, 50).say("joules", "3", "J").say("goodput", "1", "1")
        paper.at("ddp", 2, 100).say("comm_time", "3", "MB/s").say("speedup", "1.9", "furlong").at("ddp", 8, 50).say("speedup", "5", "1")
        result = Result(paper)
        for (quantity, *setting), why in {
            ("goodput", 2, 50): "unknown quantity",
            ("joules", 2, 50): "unknown quantity",
            ("comm_time", 2, 100): "'MB/s' is the unit of a bandwidth, but comm_time is a time",
            ("speedup", 2, 100): "unknown unit 'furlong'",
            ("speedup", 8, 50): "no epoch time of 8 devices at batch 50 is published",
        }.items():
            self.assertEqual(result.verdict(quantity, *setting), f"cannot be recomputed: {why}")
        self.assertEqual(result.verdict("epoch_time", 2, 50), "primary")

    def test_a_column_that_no_convention_gives_may_have_been_measured(self):
        text = Result(times().each("comm_time", "1.1 7.7 9.3 0.4", "s")).verdict("comm_time", 2, 50)
        self.assertIn("so it may have been measured (T(n) - T(1)/n gives 10.0)", text)
        speedup = Result(times().each("speedup", "9.1 7.7 9.3 0.4", "1"))  # is no measurement
        self.assertIn("differs: expected 1.67", speedup.verdict("speedup", 2, 50))

    def test_without_devices_or_batches_nothing_is_guessed(self):
        text = "quantity,value,unit\nepoch_time,10,s\nspeedup,2,1\n"
        self.assertEqual(Result(text).verdict("speedup", 0, 0), "cannot be recomputed: the number of devices is not given")
        text = "quantity,value,unit,devices\nepoch_time,10,s,1\nepoch_time,5,s,2\nspeedup,2.0,1,2\n"
        self.assertEqual(Result(text).verdict("speedup", 2, 0), "agrees")

    def test_reports_are_not_mixed_and_the_fewest_devices_are_the_base(self):
        paper = Paper().raw("a,t,m,single,1,32,epoch_time,100,s", "b,t,m,ddp,2,32,epoch_time,50,s", "b,t,m,ddp,2,32,speedup,2,1",
                            "a,t,m,ddp,2,32,epoch_time,80,s")  # fmt: skip
        self.assertEqual(Result(paper).verdict("speedup", 2, 32),
                         "cannot be recomputed: no epoch time of fewer than 2 devices is published")  # fmt: skip
        paper = Paper().at("ddp", 2, 32).say("epoch_time", "50.0").at("ddp", 4, 32).say("epoch_time", "30.0")
        self.assertEqual(Result(paper.say("speedup", "1.67", "1")).verdict("speedup", 4, 32), "agrees")  # 50/30

    def test_parts_against_the_epoch(self):
        result = Result(times().each("compute_time", "60.0 10.0 53.0 20.0", "s").each("comm_time", "5.0 41.0 1.0 4.0", "s"))
        for part, text in (("compute equals the whole epoch", "contradicted"),
                           ("compute equals the whole epoch", "2 devices at batch 50: 60 s of 60 s, with 5 s"),
                           ("communication takes longer than the epoch", "4 devices at batch 50: 41 s of 40 s"),
                           ("compute takes longer than the epoch", "53 s of 52 s"),
                           ("is more than the epoch", "10 s + 41 s, 11 s more than 40 s"),
                           ("unaccounted", "20 s + 4 s, 4 s less than 28 s")):  # fmt: skip
            self.assertIn(text, result.finding(part))

    def test_super_linear_speedups_printed_or_by_the_times(self):
        printed = Result(times().each("speedup", "2.1 2.5 1.92 3.57", "1"))
        self.assertIn("impossible: super-linear speedup: 2 devices at batch 50: 2.1; needs T(1) = 126 s instead of 100 s.",
                      printed.finding("super-linear"))  # fmt: skip
        self.assertEqual(Result(times().each("speedup", "2.0 2.5 1.92 3.57", "1")).finding("super-linear"), "")
        paper = Paper().at("single", 1, 32).say("epoch_time", "100").at("ddp", 2, 32).say("epoch_time", "40")
        self.assertIn("derived communication -10 s", Result(paper).finding("fall faster"))  # 40 - 50

    def test_bandwidth_beyond_links_and_beyond_what_was_sent(self):
        paper = times().each("comm_time", "10.0 15.0 2.0 3.0", "s").each("bandwidth", "2000 3.0 3.1 2.9", "GB/s")
        result = Result(paper, message_bytes=44700000)
        self.assertIn("2 devices at batch 50: 2000 GB/s", result.finding("more than any link"))
        # 2000 GB/s for 10 s; on both links, each device through all images: 2 * 2 * 44.7 MB * 500.
        self.assertIn("for 10 s are 20000 GB, of 89.4 GB", result.finding("more than all gradients"))
        self.assertNotIn("batch 100", result.finding("more than all gradients"))
        self.assertEqual(Result(paper, message_bytes=44700000, fastest_link=3 * 10**12).finding("more than any link"), "")

    def test_bandwidth_that_follows_the_batch(self):
        paper = Paper().at("ddp", 2, 32).say("bandwidth", "1.0", "GB/s").at("ddp", 2, 128).say("bandwidth", "4.0", "GB/s")
        self.assertIn("2 devices: 4 times from batch 32 to 128", Result(paper).finding("follows the batch"))

    def test_units_a_step_apart_in_a_column_and_between_reports(self):
        paper = Paper()
        for batch, a, b in ((32, 10, 11), (64, 20, 19), (128, 40, 44)):
            paper.raw(f"a,t,resnet18,ddp,2,{batch},bandwidth,{a},MB/s", f"b,t,resnet18,ddp,2,{batch},bandwidth,{b},GB/s")
        self.assertIn("b prints about 1,000 times what a prints", Result(paper).finding("about 1,000 times"))
        # T(n) - T(1)/n is 10, 15, 2 and 3 s; printed in the wrong unit.
        column = Result(times().each("comm_time", "10000 15000 2000 3000", "s"))
        self.assertIn("1,000 times too large", column.finding("only if it is"))

    def test_shares_counts_signs_and_percentages(self):
        paper = Paper().at("ddp", 2, 32).say("compute_share", "70", "%").say("comm_share", "31.5", "%")
        paper.at("ddp", 4, 32).say("compute_share", "45", "%").say("comm_share", "17", "%")
        paper.at("a", 1, 32).say("epoch_1_accuracy", "101", "%").say("epoch_2_accuracy", "63.5", "1")
        paper.at("b", 1, 32).say("test_correct", "10001", "of 10000").say("epoch_time", "-3")
        paper.at("c", 1, 32).say("test_correct", "99.5", "of 10000").say("epoch_time", "0")
        paper.at("d", 1, 32).say("compute_share", "50", "%").say("comm_share", "50", "%")
        result = Result(paper)
        for part, text in (("shares of one whole", "compute_share 70 % + comm_share 31.5 % = 101.5 %"), ("do not sum", "leave 38 %"),
                           ("above 100 %: line", "epoch_1_accuracy 101 %"), ("above 1 as a fraction", "epoch_2_accuracy 63.5"),
                           ("more right than there are", "10001"), ("below zero", "impossible: below zero: line 9"),
                           ("not whole", "99.5"), ("zero: line", "epoch_time")):  # fmt: skip
            self.assertIn(text, result.finding(part))
        self.assertNotIn("50 %", result.finding("do not sum"))

    def test_ranks_of_one_run(self):
        paper = Paper()
        for rank, correct, seconds in ((0, 1270, "1.17"), (1, 1271, "1.74"), (2, 1270, "1.75")):
            paper.at(f"allreduce:rank{rank}", 3, 64).say("test_correct", correct, "of 10000").say("mean_iteration_time", seconds)
            paper.say("train_accuracy", 10 + rank, "%")
        result = Result(paper)
        self.assertIn("1270, 1271, 1270", result.finding("different test results"))
        self.assertIn("1.17, 1.74, 1.75", result.finding("different iteration times"))
        self.assertEqual(result.finding("10, 11, 12"), "")  # each rank trains on its own images

    def test_four_ranks_that_agree(self):
        paper = Paper().at("single", 1, 256).say("mean_iteration_time", "2.3370", "seconds")
        for rank, seconds in enumerate(("3.912", "3.905", "3.907", "3.906")):
            paper.at(f"gather-scatter:rank{rank}", 4, 64).say("mean_iteration_time", seconds, "seconds")
        self.assertEqual(Result(paper).audit.findings, [])

    def test_one_thing_with_two_values_and_a_batch_of_all_images(self):
        paper = Paper()
        for batch, a, b in ((32, 20, 16), (64, 20, 9)):
            paper.raw(f"r,batch-size,m,single,1,{batch},epoch_2_time,{a},s", f"r,speedup,m,single,1,{batch},epoch_time,{b},s")
        paper.raw("r,batch-size,m,single,1,60000,epoch_2_time,7,s", "r,batch-size,m,single,1,120000,epoch_2_time,21,s")
        paper.raw("r,batch-size,m,single,1,128,epoch_1_time,90,s", "r,batch-size,m,single,1,128,epoch_2_time,20,s")
        result = Result(paper)
        self.assertIn("20 s (epoch_2_time, batch-size), 16 s", result.finding("more than 5 %"))
        self.assertIn("1 device at batch 64", result.finding("far apart"))
        self.assertNotIn("128", result.finding("far apart"))  # the first epoch warms up
        spelled = Result(paper.text.replace("epoch_1_time", "Epoch-1-Time").replace("epoch_2_time", "Epoch 2 time"))
        self.assertEqual(spelled.finding("far apart"), result.finding("far apart"))
        self.assertIn("times from 7 s to 21 s", result.finding("larger than the data set"))

    def test_losses_and_accuracies_that_do_not_go_together(self):
        paper = Paper()  # half wrong needs a loss of 0.5 ln 2 = 0.3466 at least
        for mode, loss, accuracy in (("a", "0.33", "50.0"), ("b", "0.36", "50.0"), ("c", "4.4", "10.9")):
            paper.at(mode, 1, 32).say("epoch_1_loss", loss, "1").say("epoch_1_accuracy", accuracy, "%")
        result = Result(paper)
        small = result.finding("too small for its accuracy")
        self.assertIn("a, 1 device at batch 32: loss 0.33 at 50 %", small)
        self.assertNotIn("0.36", small)
        self.assertIn("c, 1 device", result.finding("loss above guessing"))

    def test_an_accuracy_that_is_the_mean_over_batches(self):
        # 10 images, batches of 4, 4 and 2; right 3, 2 and 1: (3/4 + 2/4 + 1/2)/3 = 58.333 %, which is 5.83 images.
        paper = Paper().at("a", 1, 4).say("epoch_1_accuracy", "58.33333333333333", "%")
        paper.at("b", 1, 4).say("epoch_1_accuracy", "60.00000000000000", "%")
        text = Result(paper, images=10).finding("no whole number")
        self.assertIn("a, 1 device at batch 4: 58.333333 % of 10 are 5.83 images, but a whole number in the mean", text)
        self.assertNotIn("b, 1", text)

    def test_training_time_against_running_time(self):
        paper = Paper()
        for mode, devices, training in (("single", 1, "20"), ("ddp", 4, "5"), ("ddp", 2, "25")):
            paper.at(mode, devices, 32).say("training_time", training).say("running_time", "22")
        result = Result(paper)
        self.assertIn("5 s of 22 s, so T(1)/T(n) is 4.00 or 1.00", result.finding("much less than running"))
        self.assertIn("2 devices at batch 32: 25 s of 22 s", result.finding("training time above running"))

    def test_training_time_against_running_time_of_the_same_epoch(self):
        paper = Paper().at("single", 1, 32)
        for epoch, training, running in ((1, "30", "90"), (2, "20", "22")):
            paper.say(f"epoch_{epoch}_training_time", training).say(f"epoch_{epoch}_running_time", running)
        finding = Result(paper).finding("much less than running")
        self.assertIn("30 s of 90 s", finding)
        self.assertNotIn("20 s of", finding)

    def test_weak_scaling_shows_in_compute_that_does_not_shrink(self):
        paper = Paper().at("ddp", 2, 32).say("compute_time", "15.5").at("ddp", 4, 32).say("compute_time", "15.4")
        self.assertIn("15.5 s on 2, 15.4 s on 4", Result(paper).finding("does not shrink"))

    def test_a_base_of_another_global_batch(self):
        # T(2) at batch 50 has the global batch of T(1) at batch 100: 100/60, and 80/60 against that.
        paper = Paper().at("single", 1, 50).say("epoch_time", "100.0").at("single", 1, 100).say("epoch_time", "80.0")
        paper.at("ddp", 2, 50).say("epoch_time", "60.0").say("speedup", "1.67", "1")
        self.assertIn("T(1)/T(n) is 1.67, against the same global batch 1.33", Result(paper).finding("another global batch"))

    def test_communication_on_one_device_has_a_finding_and_a_value(self):
        paper = times().at("single", 1, 128).say("comm_time", "1.4798").say("bandwidth", "30.20", "MB/s")
        for devices, seconds, rate in ((2, "0.7441", "60.07"), (4, "0.4007", "111.54")):
            paper.at("ddp", devices, 128).say("comm_time", seconds).say("bandwidth", rate, "MB/s")
        result = Result(paper)
        text = result.finding("communication on one device")
        self.assertIn("comm_time 1.4798 s; 1 device at batch 128: bandwidth 30.20 MB/s. Nothing crosses a link", text)
        self.assertNotIn("60.07", text)
        self.assertEqual(result.verdict("bandwidth", 1, 128), "agrees")  # 44,695,848 B / 1.4798 s

    def test_an_epoch_time_that_is_published_is_not_called_unpublished(self):
        paper = times().at("single", 1, 50).say("compute_time", "90.0").say("comm_time", "9.0").say("speedup", "3", "1")
        self.assertNotIn("no epoch time", Result(paper).verdict("speedup", 1, 50))

    def test_one_message_takes_as_long_at_any_batch(self):
        def of(values, part):
            return Result(times().each("comm_time", values, "s")).finding(part)

        # 500, 250, 250 and 125 iterations: 10 ms each, and 64 ms at the last.
        self.assertIn("4 devices: 10 ms x 250 at batch 50, 64 ms x 125 at batch 100; batch 100 needs 1.25 s instead of 8 s.",
                      of("5.0 2.5 2.5 8.0", "contradicted: communication grows"))  # fmt: skip
        self.assertEqual(of("5.0 2.5 2.5 1.25", "message grows") + of("5.0 2.5 2.5 1.25", "communication grows"), "")
        self.assertEqual(of("30.0 9.0 2.5 1.25", "message grows"), "")  # more of it is hidden
        later = of("5.0 2.5 5.2 4.0", "communication grows")  # 10 to 32 ms
        self.assertIn("4 devices", later)
        self.assertNotIn("2 devices", later)
        self.assertEqual(of("5.0 9.0 2.5 8.9", "message grows"), "")  # 36 and 71 ms: less than 3 times

    def test_two_clocks_in_one_ratio_and_in_one_report(self):
        def clocks(speedups):
            paper = Paper()
            for mode, devices, batch, training, running in (
                ("single", 1, 32, "100.0", "140.0"), ("single", 1, 64, "90.0", "130.0"), ("ddp", 2, 32, "60.0", "80.0"),
                ("ddp", 4, 32, "35.0", "50.0"), ("ddp", 2, 64, "50.0", "72.0"), ("ddp", 4, 64, "30.0", "45.0"),
            ):  # fmt: skip
                paper.at(mode, devices, batch).say("training_time", training).say("running_time", running)
            for (devices, batch), value in zip(((2, 32), (4, 32), (2, 64), (4, 64)), speedups.split()):
                paper.at("ddp", devices, batch).say("speedup", value, "1")
            return paper

        # T(1) of running time over T(n) of training time: 140/60, 140/35, 130/50, 130/30.
        text = Result(clocks("2.33 4.00 2.60 4.33")).finding("two clocks in one ratio")
        self.assertIn("T(n) is training_time, T(1) is running_time", text)
        self.assertIn("2 devices at batch 32: speedup 2.33; 1.67 by training_time, 1.75 by running_time", text)
        paper = clocks("1.75 2.80 1.81 2.89")
        self.assertEqual(Result(paper).finding("two clocks"), "")
        # Beside a split by training time: 60 - 100/2, 35 - 100/4, 50 - 90/2, 30 - 90/4.
        for devices, batch, comm in ((2, 32, "10.0"), (4, 32, "10.0"), (2, 64, "5.0"), (4, 64, "7.5")):
            paper.at("ddp", devices, batch).say("comm_time", comm)
        self.assertIn("comm_time by training_time", Result(paper).finding("speedup by running_time"))

    def test_the_volume_of_all_links_called_bandwidth(self):
        # 2(n-1)*S*iterations / 10 s with S = 1 MB: 2, 6, 2, 6 MB x 500, 250, 250, 125 / 10.
        paper = times().each("comm_time", "10.00 10.00 10.00 10.00", "s").each("bandwidth", "100.0 150.0 50.0 75.0", "MB/s")
        text = Result(paper, message_bytes=1000000).finding("volume of all links")
        self.assertIn("4 devices at batch 50: 150.0 MB/s, on one link 37.5 MB/s", text)
        busbw = times().each("comm_time", "10.00 10.00 10.00 10.00", "s").each("bandwidth", "50.0 37.5 25.0 18.8", "MB/s")
        self.assertEqual(Result(busbw, message_bytes=1000000).finding("volume of all links"), "")

    def test_more_devices_slower_than_one(self):
        paper = Paper().at("single", 1, 32).say("epoch_time", "20.0").at("single", 1, 64).say("epoch_time", "30.0")
        paper.at("ddp", 2, 32).say("epoch_time", "25.0")  # faster than one with 64
        paper.at("ddp", 2, 64).say("epoch_time", "31.0")  # by 3 %, which repeats explain
        self.assertEqual(Result(paper).finding("slower than one"), "")
        paper.at("ddp", 4, 32).say("epoch_time", "22.0")
        self.assertIn("4 devices at batch 32: epoch_time of 22 s against 20 s", Result(paper).finding("slower than one"))


class Tables(unittest.TestCase):
    def test_speedup_strong_and_weak(self):
        paper = Paper().at("single", 1, 50).say("epoch_time", "100.0").at("single", 1, 100).say("epoch_time", "80.0")
        paper.at("ddp", 2, 50).say("epoch_time", "60.0").say("speedup", "1.67", "1")
        paper.raw("r,t,vgg11,single,1,256,mean_iteration_time,2.5,s", "r,t,vgg11,ddp,4,256,mean_iteration_time,3.125,s")
        rows = Result(paper).rows("speedup")
        weak, strong = (row_of(rows, mode="ddp", model="resnet18", scaling=scaling) for scaling in ("weak", "strong"))
        self.assertAlmostEqual(float(weak["speedup"]), 100 / 60)
        self.assertAlmostEqual(float(strong["speedup"]), 80 / 60)
        self.assertAlmostEqual(float(strong["efficiency_percent"]), 200 / 3)
        self.assertEqual((strong["published_speedup"], weak["weak_speedup"]), ("1.67", ""))  # of an epoch
        iteration = row_of(rows, mode="ddp", model="vgg11")  # 2.5/3.125 = 80 %, four times the work in it
        self.assertAlmostEqual(float(iteration["efficiency_percent"]), 80)
        self.assertAlmostEqual(float(iteration["weak_speedup"]), 3.2)
        self.assertEqual(row_of(rows, remark="the base itself", batch_per_rank=50)["speedup"], "1")

    def test_split(self):
        paper = times().at("ddp", 4, 100).say("compute_time", "20").say("comm_time", "4").say("bandwidth", "2.0", "GB/s")
        rows = Result(paper, message_bytes=2**20).rows("split")
        row = row_of(rows, ranks=4, batch_global=400)
        # 125 iterations: T(4) 28 s, T(1)/4 = 25 s, so 3 s; printed 20 s and 4 s. 1.5 * 2^20 B * 125 / 4 s; derived 3 s.
        for name, value in (("iteration_ms", 224), ("derived_compute_ms", 200), ("derived_communication_ms", 24),
                            ("published_compute_ms", 160), ("published_sum_percent", 2400 / 28), ("busbw_measured_gb_per_s", 0.049152),
                            ("busbw_derived_gb_per_s", 0.065536), ("ring_epoch_measured_gib_per_s", 1.5 / 1024 / 4),
                            ("published_gb_per_s", 2)):  # fmt: skip
            self.assertAlmostEqual(float(row[name]), value, msg=name)
        self.assertEqual(row_of(rows, ranks=2, batch_global=100)["busbw_measured_gb_per_s"], "")  # not printed

    def test_epochs(self):
        paper = Paper().at("single", 1, 50).say("epoch_2_accuracy", "50", "%").say("epoch_10_accuracy", "80", "%")
        paper.at("ddp", 4, 500).say("epoch_10_accuracy", "62.5", "%").say("epoch_10_loss", "1.25", "1").say("epoch_10_time", "25.0")
        paper.at("ddp", 4, 12500).say("epoch_10_accuracy", "12", "%")
        paper.at("ddp", 4, 20000).say("epoch_10_accuracy", "11", "%").raw("r,other,resnet18,ddp,2,50,test_correct,700,of 1000")
        rows = Result(paper).rows("epochs")
        row = row_of(rows, batch_global=2000)
        self.assertEqual([row[name] for name in ("epoch", "accuracy_percent", "base_batch_global", "loss", "epoch_time_s", "images_per_s",
                                                 "iterations")], ["10", "62.5", "50", "1.25", "25", "2000", "25"])  # fmt: skip
        self.assertAlmostEqual(float(row["accuracy_change_points"]), -17.5)
        for full in (50000, 80000):
            self.assertIn("full batch", row_of(rows, batch_global=full)["remark"])
        self.assertEqual(row_of(rows, table="other")["test_accuracy_percent"], "70")
        self.assertEqual(row_of(rows, epoch="2")["accuracy_change_points"], "0")

    def test_numbers_as_they_were_read(self):
        rows = Result(times().at("ddp", 2, 50).say("bandwidth", "~1.50", "MB/s").say("goodput", "1", "J")).rows("numbers")
        row = row_of(rows, quantity="bandwidth")
        self.assertEqual([row[name] for name in ("line", "devices", "value", "unit", "decimals", "kind", "base_value")],
                         ["8", "2", "1.5", "MB/s", "1", "bandwidth", "1500000"])  # fmt: skip
        self.assertEqual(row_of(rows, quantity="goodput")["base_value"], "")

    def test_clean_numbers_give_no_finding_and_every_table_can_be_made(self):
        result = Result(times().each("speedup", "1.67 2.50 1.92 3.57", "1"))
        self.assertEqual(result.audit.findings, [])
        self.assertIn("4 agree", result.page())
        self.assertEqual(set(ROWS) | {"audit"}, set(TABLES))
        for name in ROWS:
            self.assertIn("###", as_markdown(make_table(result.audit, name)))
        self.assertEqual(len(result.rows("values")), 4)

    def test_a_page_as_text_and_as_markdown(self):
        paper = times().raw("r,t,resnet18,<b>,2,50,goodput,1,1")
        markdown, text = Result(paper).page(markdown=True), Result(paper).page()
        self.assertIn("- **line 8**: goodput of \\<b\\>, 2 devices at batch 50 is 1; cannot be", markdown)
        self.assertIn("\nr\n-\n\nValues that do not agree\n\n  - line 8: goodput of <b>, 2 devices", text)
        self.assertLessEqual(max(len(line) for line in text.split("primary: ")[0].splitlines()), 100)
        self.assertEqual([lines_text({9, 3, 4, 5, 11}), lines_text({7})], ["lines 3-5, 9, 11", "line 7"])


class Reports(unittest.TestCase):
    """The published reports that are in the repository."""

    @classmethod
    def setUpClass(cls):
        cls.result = Result(REPORTS.read_text())

    def on_line(self, line):
        return next(verdict.text for row, verdict in self.result.audit.verdicts.items() if row.line == line)

    def test_findings_worked_out_by_hand(self):
        # report-a: 41.3/23.15 = 1.784; 33.64/17.87 = 1.882; 44,695,848 B / 2.9463 s = 15.17 MB/s, / 14.61 MB/s = 3.059 s.
        for line, text in ((27, "differs: expected 1.78"), (29, "agrees"), (37, "agrees (cut off, not rounded)"),
                           (157, "agrees"), (169, "agrees"), (170, "agrees"), (172, "agrees"), (272, "agrees"), (284, "agrees")):  # fmt: skip
            self.assertEqual(self.on_line(line), text)
        self.assertIn("differs: expected 15.17 (message", self.on_line(40))
        self.assertIn("needs comm = 3.059 s", self.on_line(40))
        # report-c: 0.0435469 GiB / 4.19 s = 0.01039, from 0.044/4.19 = 0.01050.
        self.assertIn("differs: expected 0.0104; follows from 0.044 GB in 4.19 s", self.on_line(184))
        for text in ("14.61 MB/s instead of a busbw of 11.86 GB/s over 782", "4 devices at batch 512: 4.2",
                     "34300.87 images, but a whole", "is 3.69 or 0.99", "179.5 GB, of 139.8 GB", "936 to 1225", "1083, 1089, 1084, 1083",
                     "14.6 ms x 782 at batch 32, 2.04 ms x 196 at batch 128, 32.4 ms x 49", "0.57 needs T(n) = 27.88 s",
                     "3.295903942 GB/s, on one link 1.647951971 GB/s"):  # fmt: skip
            self.assertNotEqual(self.result.finding(text), "", text)
        self.assertTrue(all(one.right_if for one in self.result.audit.findings))

    def test_every_number_that_they_print_is_there_once(self):
        rows = self.result.audit.study.rows
        counts = {report: len(of) for report, of in self.result.audit.study.by_report.items()}
        self.assertEqual(counts, {"report-a": 64, "report-b": 85, "report-c": 51, "report-d": 88, "report-e": 38})
        self.assertEqual([row.line for row in rows if not row.usable], [])
        modes = {}  # one setting has one mode in a report, whatever the table
        for row in rows:
            modes.setdefault((row.report, row.devices, row.batch), set()).add(row.mode)
        self.assertEqual({key for key, of in modes.items() if len(of) > 1 and key[0] != "report-b"}, set())

    def test_the_page_is_what_the_command_prints_byte_for_byte(self):
        printed = subprocess.run([PROGRAM, REPORTS, "--table", "audit", "--format", "markdown"], check=True, capture_output=True)
        self.assertEqual(printed.stdout, (REPORTS.parent / "audit.md").read_bytes())

    def test_mutated_files_end_in_an_audit_or_in_an_error_with_a_line(self):
        whole, chance, ends = "".join(REPORTS.open().readlines()[:90]), random.Random(20260101), {"audited": 0, "refused": 0}
        for _ in range(120):
            text = list(whole)
            for _ in range(chance.randint(1, 4)):
                at = chance.randrange(len(text))
                text[at : at + chance.choice((0, 1, 1, 20))] = chance.choice(',"\n\r-+.e0159%;\t\0\u00ff xsN')
            try:
                self.assertIn("audited", Result("".join(text)).page())
                ends["audited"] += 1
            except AuditError as error:
                self.assertRegex(str(error), r"^t\.csv:\d+: ")
                ends["refused"] += 1
        self.assertTrue(min(ends.values()) > 10, ends)


class CommandLine(unittest.TestCase):
    def run_audit(self, *arguments, code=0):
        done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "paper.csv"
        self.file.write_text(times().each("speedup", "1.67 2.50 1.92 3.57", "1").text)

    def test_help_fits_a_terminal_and_an_option_begins_its_line(self):
        lines = self.run_audit("--help").stdout.splitlines()
        self.assertEqual([line for line in lines if len(line) > 80], [])
        self.assertIn("  --images N            images of one epoch [50000]", lines)

    def test_mistakes_have_the_exit_codes_and_fixes_of_the_other_programs(self):
        for code, arguments, text in (
            (64, [], "0 files were named, and one is audited\n  fix: gradsync-audit FILE"),
            (64, ["--table", "vallues", self.file], "did you mean values?"),
            (64, ["--images", "0", self.file], '--images: "0" is out of range'),
            (64, ["--message-bytes", "4M", self.file], "is not a size"),
            (64, ["--message-bytes", "64kiB", self.file], "is not a size"),
            (64, ["--nonsense", self.file], "--nonsense"),
            (66, [self.folder / "nowhere.csv"], "No such file"),
            (73, [self.file, "--output", "/proc/nowhere"], "cannot write"),
        ):
            done = self.run_audit(*arguments, code=code)
            self.assertIn(text, done.stderr)
            self.assertTrue(done.stderr.startswith("gradsync-audit: "))
        self.file.write_text("quantity,value\nepoch_time,ERROR\n")
        self.assertEqual(self.run_audit(self.file, code=65).stderr.splitlines()[0],
                         f'gradsync-audit: {self.file}:2: the value "ERROR" is not a finite number')  # fmt: skip

    def test_tables_in_all_formats_to_a_folder_and_as_json(self):
        out = self.folder / "out"
        printed = self.run_audit(self.file, "--format", "all", "--output", out, "--json", self.folder / "all.json").stdout
        self.assertIn("Published numbers of paper.csv, audited", printed)
        self.assertNotIn("\nFindings in paper.csv\n", printed)  # the page holds them
        names = {path.name for path in out.iterdir()}
        self.assertLessEqual({"audit.md", "audit.txt", "published-values.csv", "published-findings.json"}, names)
        self.assertFalse([name for name in names if "tmp" in name])
        tables = json.loads((self.folder / "all.json").read_text())["tables"]
        self.assertEqual([table["name"] for table in tables], [f"published-{name}" for name in ROWS if name != "numbers"])
        self.assertEqual(self.run_audit(self.file, "--quiet").stdout, "")

    def test_options_reach_the_audit(self):
        self.file.write_text("quantity,value,unit,devices\nepoch_time,10,s,1\nepoch_time,5,s,2\nimages_per_s,12000,images/s,2\n")
        printed = self.run_audit(self.file, "--images", 60000, "--batch", 32, "--table", "values", "--format", "csv").stdout
        self.assertIn(",2,32,images_per_s,12000,images/s,12000,agrees", printed)

    def test_a_full_disk_is_an_error(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([PROGRAM, self.file], stdout=full, stderr=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, 74)
        out = self.folder / "out.json"
        out.write_text("old")
        limited = [sys.executable, "-c", "import os, resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
                   "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); os.execv(sys.argv[1], sys.argv[1:])"]  # fmt: skip
        done = subprocess.run([*limited, PROGRAM, self.file, "--json", out], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, out.read_text()), (73, "old"), done.stderr)
        self.assertEqual([path.name for path in self.folder.glob("*.tmp-*")], [])

    def test_files_get_the_mode_of_the_umask(self):
        done = subprocess.run([PROGRAM, self.file, "--json", self.folder / "out.json"], umask=0o077, stdout=subprocess.PIPE, check=False)
        self.assertEqual((done.returncode, (self.folder / "out.json").stat().st_mode & 0o777), (0, 0o600))


class Lines(unittest.TestResult):
    """Prints a line for each case, as tests/run counts them."""

    def line(self, word, test, why=""):
        print(f"{word} audit {test.id().split('.', 1)[1]}{': ' if why else ''}{why}", flush=True)

    def addSuccess(self, test):
        self.line("PASS", test)

    def addSkip(self, test, reason):
        self.line("SKIP", test, reason)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        traceback.print_exception(*error)
        self.line("FAIL", test)

    addError = addFailure


if __name__ == "__main__":
    loader, module = unittest.TestLoader(), sys.modules[__name__]
    suite = loader.loadTestsFromNames(sys.argv[1:], module) if sys.argv[1:] else loader.loadTestsFromModule(module)
    outcome = Lines()
    suite.run(outcome)
    sys.exit(not outcome.wasSuccessful())
