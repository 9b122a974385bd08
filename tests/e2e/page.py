#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What gradsync-report draws from real runs: plots, the page, the trace. Prints PASS, FAIL or SKIP a case.

usage: page.py [NAME...]    (run by tests/run, which sets MPIRUN)
"""
import base64
import csv
import filecmp
import gzip
import hashlib
import html.parser
import importlib.util
import io
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
import xml.etree.ElementTree

import harness
from harness import BIN, Result, Skip, check, run

VOID = {"meta", "link", "img", "br", "hr", "input"}
RUNS = pathlib.Path()


def report(*arguments) -> Result:
    return run([BIN / "gradsync-report", *arguments])


def audit(*arguments) -> Result:
    return run([BIN / "gradsync-audit", *arguments])


class Page(html.parser.HTMLParser):
    """Ids, links and numbers of a page; complains about tags that do not match."""

    def __init__(self, text: str):
        super().__init__()
        self.ids, self.links, self.open, self.numbers, self.cell = [], [], [], {}, None
        self.tags = set()
        self.feed(text)
        self.close()
        check(not self.open, f"left open: {self.open}")

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.tags.add(tag)
        if "id" in values:
            self.ids.append(values["id"])
        self.links += [values[name] for name in ("href", "src", "data", "action", "xlink:href") if name in values]
        self.links += re.findall(r"url\(([^)]*)\)", " ".join(value or "" for value in values.values()))
        if tag == "td" and "data-value" in values:
            self.cell = values["id"]
            self.numbers[self.cell] = (values["data-value"], "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        check(bool(self.open) and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}")
        self.open.pop()
        if tag == "td":
            self.cell = None

    def handle_data(self, data):
        if self.cell:
            self.numbers[self.cell] = (self.numbers[self.cell][0], self.numbers[self.cell][1] + data)


class Browser:
    """A Chromium that shows one page, controlled by the DevTools protocol over two pipes."""

    def __init__(self, page, folder):
        program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        if not program:
            raise Skip("no chromium")
        (to_read, self.to), (self.back, from_write) = os.pipe(), os.pipe()
        options = "--headless=new --no-sandbox --disable-gpu --remote-debugging-pipe"
        # It reads from descriptor 3 and writes to 4.
        start = f"exec 3<&{to_read} 4>&{from_write}; exec {program} {options} --user-data-dir={folder}/profile"
        own = {"XDG_CONFIG_HOME": f"{folder}/config", "XDG_CACHE_HOME": f"{folder}/cache"}
        self.process = subprocess.Popen(["bash", "-c", start], env=os.environ | own, pass_fds=(to_read, from_write), stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(from_write)
        self.calls, self.bytes, self.session = 0, b"", {}
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = {"sessionId": self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        self.call("Page.enable")
        self.call("Page.navigate", url=page.resolve().as_uri())
        self.message(lambda message: message.get("method") == "Page.loadEventFired")

    def message(self, wanted):
        while True:
            while b"\0" not in self.bytes:
                more = os.read(self.back, 1 << 20)
                check(more, "the browser ended")
                self.bytes += more
            one, self.bytes = self.bytes.split(b"\0", 1)
            if wanted(message := json.loads(one)):
                return message

    def call(self, method, **parameters):
        self.calls += 1
        os.write(self.to, json.dumps({"id": self.calls, "method": method, "params": parameters} | self.session).encode() + b"\0")
        answer = self.message(lambda message: message.get("id") == self.calls)
        check("result" in answer, f"{method}: {answer}")
        return answer["result"]

    def value(self, expression):
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def look(self, width, scheme):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def close(self):
        self.process.terminate()
        self.process.wait()


# Contrast of a color with the page behind it (WCAG 2.1).
CONTRAST = """function contrast(color) {
  var pixel = document.createElement("canvas").getContext("2d", {colorSpace: "srgb"});
  function light(any) {
    pixel.fillStyle = any; pixel.fillRect(0, 0, 1, 1);
    var c = pixel.getImageData(0, 0, 1, 1).data;
    return [0, 1, 2].reduce(function (sum, i) {
      var v = c[i] / 255;
      return sum + [0.2126, 0.7152, 0.0722][i] * (v <= 0.04045 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4));
    }, 0);
  }
  var a = light(color) + 0.05, b = light(getComputedStyle(document.body).backgroundColor) + 0.05;
  return Math.max(a, b) / Math.min(a, b);
}"""


LEAST_CONTRAST = """function least(marks) {
  return Math.min(...Array.from(document.querySelectorAll(marks), function (mark) {
    var style = getComputedStyle(mark);
    return contrast(mark.closest("svg") && style.stroke !== "none" ? style.stroke : style.color);
  }));
}"""


# --- cases: each gets an empty folder ---------------------------------------------------------------


def case_page_holds_every_number_of_every_table(folder):
    report(RUNS, "--html", folder / "page.html", "--output", folder / "out", "--format", "json", "--plots", "no").expect(0)
    page = Page((folder / "page.html").read_text())
    numbers = {}
    for path in (folder / "out").glob("*.json"):
        table = json.loads(path.read_text())
        for row, values in enumerate(table.get("rows", []) if isinstance(table, dict) else [], 1):
            numbers |= {f"{table['name']}.{row}.{column}": value for column, value in values.items()
                        if not isinstance(value, str)}  # fmt: skip
    check(len(numbers) > 100, f"only {len(numbers)} numbers")
    check(numbers.keys() == page.numbers.keys(), f"differ: {sorted(numbers.keys() ^ page.numbers.keys())[:5]}")
    for name, value in numbers.items():
        exact, shown = page.numbers[name]
        check((float(exact) if exact else None) == value, f"{name}: {exact} is not {value}")
        check((shown == "n/a") == (value is None), f"{name}: {value} is shown as {shown}")


def case_page_needs_nothing_else_and_ids_are_unique(folder):
    report(RUNS, "--html", folder / "page.html").expect(0)
    text = (folder / "page.html").read_text()
    page = Page(text)
    check(len(page.ids) == len(set(page.ids)), "ids are not unique")
    for link in page.links:
        check(link.startswith("#") and link[1:] in page.ids, f"link to {link}")
    check(not re.search(r"https?:|//[a-z]|@import|@font-face|fetch\(|XMLHttpRequest", text), "something is fetched")
    check({"svg", "table", "nav", "main", "figure"} <= page.tags, f"only {page.tags}")
    script = re.search(r"<script>(.*)</script>", text, re.S)
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    check(f"script-src 'sha256-{digest}'" in text.split("<style>")[0], "the policy is not that of the script")
    for part in ("prefers-color-scheme:dark", 'name="viewport"', ">Runs<", "How the numbers are computed"):
        check(part in text, f"{part} is missing")


def case_a_browser_shows_it_on_a_phone_in_the_dark_and_on_paper(folder):
    page = folder / "page.html"
    report("results/example/modes", "--html", page).expect(0)
    browser = Browser(page, folder)
    try:
        for width in (400, 1200):
            for scheme in ("light", "dark"):
                browser.look(width, scheme)
                where = f"{width} px, {scheme}"
                check(browser.value("document.documentElement.scrollWidth") <= width, f"{where}: the page is wider than the window")
                for marks in (".chart .bar-end", ".chart .line", ".chart text", ".legend li", "pattern path"):
                    contrast = browser.value(f"(function () {{ {CONTRAST} {LEAST_CONTRAST} return least('{marks}'); }})()")
                    check(contrast is not None and contrast >= 1.5, f"{where}: contrast of {marks} is {contrast}")
                smallest = browser.value("Math.min(...Array.from(document.querySelectorAll('.lead .tick'), function (tick) {"
                                         " var chart = tick.closest('svg'); return parseFloat(getComputedStyle(tick).fontSize) *"
                                         " chart.getBoundingClientRect().width / chart.viewBox.baseVal.width; }))")  # fmt: skip
                check(smallest >= 9.5, f"{where}: text of {smallest} px")
        browser.look(400, "light")
        right = browser.value("document.querySelector('th[title=iteration_median_ms]').getBoundingClientRect().right")
        check(right <= 400, f"the time of an iteration ends at {right} of 400 px")
        count = "document.querySelectorAll('main details:not([open])').length"
        folded = browser.value(count)
        check(folded > 10, f"{folded} folded parts")
        browser.value(f"addEventListener('beforeprint', function () {{ window.atPrint = {count}; }})")
        browser.call("Page.printToPDF", preferCSSPageSize=True)
        check(browser.value("window.atPrint") == 0, f"{browser.value('window.atPrint')} parts are folded on paper")
        check(browser.value(count) == folded, "what was folded is open after printing")
    finally:
        browser.close()


def published_of(rows, images=50000) -> str:
    """Rows of table compute-comm as a report would print them: seconds per epoch, four digits."""
    lines = ["report,table,model,mode,devices,batch_per_device,quantity,value,unit"]
    for row in rows:
        ranks = int(row["ranks"])
        scale = -(-images // int(row["batch_global"])) / 1e3
        numbers = {"epoch_time": ("speedup", float(row["iteration_ms"])),
                   "compute_time": ("compute-comm", sum(float(row[f"measured_{part}_ms"]) for part in ("compute", "other")))}  # fmt: skip
        if ranks > 1:
            numbers["comm_time"] = ("compute-comm", float(row["measured_exposed_ms"]))
        for quantity, (table, value_ms) in numbers.items():
            mode = "single" if row["mode"] == "none" else row["mode"]
            lines.append(f"real,{table},{row['model']},{mode},{ranks},{row['batch_per_rank']},{quantity},{value_ms * scale:.4g},s")  # fmt: skip
    return "\n".join(lines) + "\n"


def case_an_audit_of_measured_numbers_finds_nothing(folder):
    table = report("--site", "/dev/null", "results/example/report-c", "--table", "compute-comm", "--format", "csv").expect(0)
    start = table.out.index("mode,model")
    rows = list(csv.DictReader(io.StringIO(table.out[start:])))
    # As reports print them: one rank without an exchange, and the modes on two.
    rows = [row for row in rows if (row["mode"] == "none") == (row["ranks"] == "1")]
    check(len(rows) == 7, f"{len(rows)} rows")
    (folder / "real.csv").write_text(published_of(rows))
    found = audit(folder / "real.csv", "--table", "findings", "--format", "csv").expect(0)
    check(len(found.out.strip().splitlines()) == 1, found)


def case_a_published_report_has_its_own_plots_only(folder):
    report("--site", "/dev/null", "results/example/report-b", "--as", "report-b", "--output", folder / "out",
           "--html", folder / "page.html").expect(0)  # fmt: skip
    drawn = {path.stem for path in (folder / "out").glob("*.svg")}
    check(drawn == {"loss", "iteration-time"}, f"drawn: {sorted(drawn)}")
    check((folder / "page.html").read_text().count("<figure") == 2, "figures on the page")
    (folder / "own.json").write_text('{"plots": ["los"], "tables": [{"name": "t", "rows": ["devices"], "quantities": ["speedup"]}]}')
    report("--site", "/dev/null", "results/example/report-b", "--as", folder / "own.json").expect(
        65, "layout own: there is no plot los; did you mean loss?")  # fmt: skip


def case_everything_is_the_same_on_the_next_run(folder):
    for name in ("a", "b"):
        report(RUNS, "--html", folder / f"{name}.html", "--output", folder / name).expect(0)
        report(RUNS / "ddp.h5", "--trace", folder / f"{name}.json.gz", "--table", "split").expect(0)
        time.sleep(1.1)  # so that a time in a file shows
    check((folder / "a.html").read_bytes() == (folder / "b.html").read_bytes(), "the pages differ")
    check((folder / "a.json.gz").read_bytes() == (folder / "b.json.gz").read_bytes(), "the traces differ")
    left = filecmp.dircmp(folder / "a", folder / "b")
    check(not left.left_only and not left.right_only and not left.diff_files, f"{left.diff_files} differ")


def case_plots_are_svg_files_and_pictures_of_them(folder):
    if not shutil.which("rsvg-convert"):
        raise Skip("needs rsvg-convert (make deps)")
    report(RUNS, "--output", folder / "out").expect(0)
    plots = sorted((folder / "out").glob("*.svg"))
    check({"loss", "iteration-time", "split", "speedup", "epoch-time"} <= {plot.stem for plot in plots}, f"only {plots}")
    for plot in plots:
        size = xml.etree.ElementTree.parse(plot).getroot().attrib
        png = plot.with_suffix(".png").read_bytes()
        check(png.startswith(b"\x89PNG") and struct.unpack(">I", png[16:20])[0] == round(1.5 * int(size["width"])), f"{plot.stem}.png")
        check(plot.with_suffix(".pdf").read_bytes().startswith(b"%PDF"), f"{plot.stem}.pdf")
        check(plot.with_suffix(".plot.csv").exists(), f"{plot.stem}.plot.csv")


def case_trace_holds_every_rank_and_collective(folder):
    report(RUNS / "ddp.h5", "--table", "split", "--trace", folder / "t.json.gz", "--trace-iterations", "5-7").expect(0)
    trace = json.loads(gzip.decompress((folder / "t.json.gz").read_bytes()))
    events = trace["traceEvents"]
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    check(len(names) == 2 and all(re.fullmatch(r"rank [01] \(.+\)", name) for name in names), f"processes {names}")
    slices = [event for event in events if event["ph"] == "X"]
    check(all(event["dur"] >= 0 and event["ts"] >= 0 for event in slices), "negative times")
    for rank in (0, 1):
        of_rank = [event for event in slices if event["pid"] == rank + 1]
        iterations = [event for event in of_rank if event["cat"] == "iteration"]
        check([event["args"]["iteration"] for event in iterations] == [5, 6, 7], f"iterations {iterations}")
        check(sum(event["cat"] == "communication" for event in of_rank) >= 3, "collectives are missing")
        for phase in ("forward", "backward", "optimizer"):
            parts = [event for event in of_rank if event["name"] == phase]
            check(len(parts) >= 3 and all("derived" in event["args"]["start"] for event in parts), f"{phase}: {parts}")
            for iteration in iterations:
                inside = [e for e in parts if iteration["ts"] - 0.01 <= e["ts"] <= iteration["ts"] + iteration["dur"]]
                check(bool(inside), f"{phase} is missing in {iteration}")
    check(trace["otherData"]["clock_uncertainty_us"][1] is not None, "the clocks' uncertainty is not said")


def case_trace_opens_in_perfetto(folder):
    if not importlib.util.find_spec("perfetto"):
        raise Skip("needs perfetto from PyPI (make deps)")
    from perfetto.trace_processor import TraceProcessor

    def give_up(*_):
        raise TimeoutError("60 s")

    signal.signal(signal.SIGALRM, give_up)

    report(RUNS / "ddp.h5", "--table", "split", "--trace", folder / "t.json", "--trace-iterations", "5-7").expect(0)
    signal.alarm(60)  # it fetches its program on first use
    try:
        processor = TraceProcessor(trace=str(folder / "t.json"))
    except Exception as error:
        raise Skip(f"Perfetto's trace processor cannot be had here: {error!r}"[:200].replace("\n", " ")) from None
    finally:
        signal.alarm(0)
    with processor:
        rows = processor.query(
            "select process.name as rank, count(*) as slices from slice join thread_track on slice.track_id = "
            "thread_track.id join thread using (utid) join process using (upid) where slice.name glob 'iteration *' "
            "group by process.name order by process.name")  # fmt: skip
        found = [(row.rank.split(" (")[0], row.slices) for row in rows]
    check(found == [("rank 0", 3), ("rank 1", 3)], f"{found}")


def case_bad_wishes_are_refused_and_leave_nothing(folder):
    wrong = folder / "t.json"
    report(RUNS, "--trace", wrong).expect(64, "--trace shows one run")
    report(RUNS / "ddp.h5", "--trace", wrong, "--trace-iterations", "9-2").expect(64, "1 <= A <= B")
    report(RUNS / "ddp.h5", "--trace-iterations", "1-2").expect(64, "needs --trace")
    report(RUNS, "--html", folder / "missing" / "page.html").expect(73)
    check(not list(folder.iterdir()), f"left behind: {list(folder.iterdir())}")


# --- harness -----------------------------------------------------------------------------------------


def prepare(folder) -> None:
    global RUNS
    RUNS = harness.small_runs(folder)


if __name__ == "__main__":
    sys.exit(harness.run_cases(dict(globals()), prepare))
