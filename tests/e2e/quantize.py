#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""gradsync-quantize from a checkpoint to the report: the same on any number of ranks, the same in NumPy, and what it
refuses.

usage: quantize.py [CASE...]    (run by tests/run e2e)
"""
import csv
import hashlib
import json
import pathlib
import re
import runpy
import shutil
import struct
import sys

import h5py
import numpy as np
from harness import BIN, ROOT, STRIKE, Failure, check, mpirun, run, run_cases, synthetic
from safetensors.numpy import load_file

DATA, CHECKPOINTS = "", pathlib.Path()
SCRIPT = ROOT / "docs/int8_lenet.py"
QUICK = ["--no-ablation", "--threads", 1]


def prepare(shared: pathlib.Path) -> None:
    global DATA, CHECKPOINTS
    DATA = synthetic(shared, 640, 250)
    run(mpirun(1) + [BIN / "gradsync-train", "--model", "lenet", "--sync", "none", "--data", DATA, "--epochs", 2,
                     "--batch-per-rank", 32, "--lr", 0.02, "--evaluate", "none", "--checkpoint-every", "end", "--output",
                     shared / "lenet.h5"], timeout=600).expect(0)  # fmt: skip
    CHECKPOINTS = shared / "lenet.checkpoints"


def quantize(*options, ranks: int = 1, checkpoint=None, data=None, quick: bool = True):
    return run(mpirun(ranks) + [BIN / "gradsync-quantize", "--checkpoint", checkpoint or CHECKPOINTS, "--data", data or DATA]
               + (QUICK if quick else []) + ([] if "--calibration-images" in options else ["--calibration-images", 100])
               + list(options), timeout=900)  # fmt: skip


def changed_checkpoint(folder: pathlib.Path, tensor: str, change) -> pathlib.Path:
    """A checkpoint with a sound digest in which the numbers of one tensor are others."""
    data = bytearray(next(CHECKPOINTS.glob("*.safetensors")).read_bytes())
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    begin, end = (8 + length + at for at in header[tensor]["data_offsets"])
    data[begin:end] = change(np.frombuffer(data[begin:end], np.float32)).astype(np.float32).tobytes()
    old = header["__metadata__"]["sha256"].encode()
    data = data.replace(old, b"0" * 64)
    path = folder / "changed.safetensors"
    path.write_bytes(data.replace(b"0" * 64, hashlib.sha256(data).hexdigest().encode()))
    return path


def refused(folder: pathlib.Path, code: int, *texts: str, checkpoint=None, options=()) -> None:
    quantize("--output", folder / "q.h5", "--save", folder / "q.safetensors", *options, checkpoint=checkpoint).expect(code, *texts)
    left = [path.name for path in folder.iterdir() if path.name.startswith("q.")]
    check(not left, f"it wrote {left}")


def numbers(path: pathlib.Path) -> dict:
    with h5py.File(path) as file:
        found = {}
        file["quantize"].visititems(lambda name, item: found.update({name: item[...]}) if isinstance(item, h5py.Dataset) else None)
        return found


def case_results_do_not_depend_on_ranks_or_threads(folder):
    shapes = {"one": (1, 1), "threads": (1, 3), "two": (2, 1), "three": (3, 2)}
    for name, (ranks, threads) in shapes.items():
        quantize("--threads", threads, "--calibration-images", 230, "--calibrator", "entropy", "--output",
                 folder / f"{name}.h5", "--save", folder / f"{name}.safetensors", ranks=ranks, quick=False).expect(0)  # fmt: skip
    expected, model = numbers(folder / "one.h5"), (folder / "one.safetensors").read_bytes()
    check(len(expected["step/name"]) > 10, "no variants")
    for name in shapes:
        found = numbers(folder / f"{name}.h5")
        for key, values in expected.items():
            same = np.array_equal(values, found[key], equal_nan=values.dtype.kind == "f")
            check(same, f"{name}: {key} is {found[key]}, not {values}")
        check((folder / f"{name}.safetensors").read_bytes() == model, f"{name}: another network was saved")


def case_numpy_agrees(folder):
    for number, extra in enumerate(([], ["--weight-convention", "affine", "--weight-granularity", "tensor", "--weight-bits", 5],
                  ["--weight-convention", "published", "--activation-convention", "published", "--calibrator", "min-max"],
                  ["--activation-bits", 3, "--calibrator", "sigma", "--sigmas", 1])):  # fmt: skip
        output, model = folder / f"q{number}.h5", folder / f"q{number}.safetensors"
        quantize("--output", output, "--save", model, *extra).expect(0)
        steps = numbers(output)
        last = list(steps["step/name"]).index(b"all, with bias")
        told = run([sys.executable, SCRIPT, model, pathlib.Path(DATA) / "test_batch.bin"]).expect(0)
        check(told.out.split()[0] == str(steps["step/correct"][last]), f"NumPy has {told.out}, not {steps['step/correct'][last]}")


def case_numpy_predicts_the_same_for_every_image(folder):
    """Labels that are NumPy's predictions: gradsync-quantize must find all of them right."""
    quantize("--save", folder / "q.safetensors").expect(0)
    shutil.copytree(DATA, folder / "data")
    batch, list_of_files = folder / "data/test_batch.bin", folder / "data/gradsync-dataset.json"
    records = np.fromfile(batch, np.uint8).reshape(-1, 3073)
    sys.argv = ["int8_lenet.py", str(folder / "q.safetensors"), str(batch)]
    records[:, 0] = runpy.run_path(str(SCRIPT))["y"].argmax(1)
    check(len(set(records[:, 0])) > 1, "one class for all images")
    old = hashlib.sha256(batch.read_bytes()).hexdigest()
    records.tofile(batch)
    list_of_files.write_text(list_of_files.read_text().replace(old, hashlib.sha256(batch.read_bytes()).hexdigest()))
    quantize("--output", folder / "q.h5", data=folder / "data").expect(0)
    steps = numbers(folder / "q.h5")
    last = list(steps["step/name"]).index(b"all, with bias")
    check(steps["step/correct"][last] == 250, f"{steps['step/correct'][last]} of 250 are NumPy's predictions")


def metadata(path: pathlib.Path) -> dict:
    data = path.read_bytes()
    return json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])["__metadata__"]


def case_a_saved_network_states_its_bits(folder):
    quantize("--save", folder / "q.safetensors", "--weight-bits", 5, "--activation-bits", 4).expect(0)
    stated = metadata(folder / "q.safetensors")
    check((stated["weight_bits"], stated["activation_bits"]) == ("5", "4"), f"{stated}")


def case_the_numpy_script_is_15_lines(folder):
    code = [line for line in SCRIPT.read_text().splitlines() if line.strip() and not line.lstrip().startswith(("#", '"""'))]
    check(len(code) <= 15, f"{len(code)} lines of code")


def case_what_is_saved_is_small(folder):
    quantize("--save", folder / "q.safetensors", "--output", folder / "q.h5").expect(0)
    data = (folder / "q.safetensors").read_bytes()
    check(len(data) / (61780 * 4) <= 0.27, f"{len(data)} bytes")
    stated, tensors = numbers(folder / "q.h5")["step/model_bytes"][-1], len(data) - 8 - struct.unpack("<Q", data[:8])[0]
    check(stated == tensors, f"{stated} bytes are stated, {tensors} written")


def case_local_sgd_is_quantized_as_it_was_evaluated(folder):
    """Between two averages each rank has its own parameters; what the run evaluated is their mean."""
    run(mpirun(2) + [BIN / "gradsync-train", "--model", "lenet", "--sync", "local-sgd", "--local-steps", 1000, "--data", DATA, "--epochs", 3,
                     "--batch-per-rank", 16, "--lr", 0.05, "--evaluate", "shard", "--checkpoint-every", "end", "--output", folder / "r.h5"]).expect(0)  # fmt: skip
    quantize("--output", folder / "q.h5", checkpoint=folder / "r.checkpoints").expect(0)
    found = numbers(folder / "q.h5")
    with h5py.File(folder / "r.h5") as file:
        trained = file["epoch/test_accuracy"][-1, 0]
    check(abs(found["step/correct"][0] / found["step/images"][0] - trained) < 0.005, f"{found['step/correct'][0]} of {found['step/images'][0]}, {trained} evaluated")


def case_report_has_tables_and_pictures(folder):
    quantize("--output", folder / "q.h5", quick=False).expect(0)
    report = run([BIN / "gradsync-report", folder / "q.h5", "--output", folder / "tables", "--format", "all", "--html",
                  folder / "page.html", "--claims", folder / "claims.json"], timeout=600).expect(0)  # fmt: skip
    check("verdict" not in report.out.lower(), "a verdict on no run")
    for name in ("quantize", "ranges", "quantize-layers"):
        check((folder / f"tables/{name}.csv").stat().st_size > 100, f"table {name} is missing")
    for name in ("weights", "weights-int8", "activations", "activations-published", "activations-int8", "bias", "inference", "accuracy"):
        check((folder / f"tables/{name}.png").stat().st_size > 1000, f"plot {name} is missing")
    check(not (folder / "tables/modes.csv").exists(), "a table of modes of no run")
    ranges = (folder / "tables/ranges.csv").read_text()
    published = {(row["layer"], row["role"]) for row in csv.DictReader(ranges.splitlines()) if row["published_minimum"]}
    expected = {("input", "pixels"), ("conv1", "pooled"), ("conv2", "pooled"), *((layer, "activation") for layer in ("fc1", "fc2", "fc3"))}
    check(published == expected, f"published ranges are beside {published}")
    run([BIN / "gradsync-report", "--verify-claims", folder / "claims.json"]).expect(0)


def case_inputs_of_layers_are_recorded_after_the_maximum(folder):
    """Histograms and ranges against NumPy, from the numbers that one image gives: the first calibration image."""
    quantize("--output", folder / "q.h5", "--calibration-images", 1).expect(0)
    found = numbers(folder / "q.h5")
    roles = [role.decode() for role in found["tensor/role"]]
    layers = [layer.decode() for layer in found["tensor/layer"]]
    data = next(CHECKPOINTS.glob("*.safetensors")).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])

    def weights(name: str):
        entry = header[f"parameters/{name}.weight"]
        begin, end = (8 + length + at for at in entry["data_offsets"])
        return np.frombuffer(data[begin:end], np.float32).reshape(entry["shape"])

    pixels = np.fromfile(pathlib.Path(DATA) / "data_batch_1.bin", np.uint8, 3073)[1:].reshape(3, 32, 32) / 255
    x = (pixels - np.array([0.4914, 0.4822, 0.4465])[:, None, None]) / np.array([0.2470, 0.2435, 0.2616])[:, None, None]
    for layer in ("conv1", "conv2"):
        windows = np.lib.stride_tricks.sliding_window_view(x, (5, 5), (1, 2))
        x = np.maximum(np.einsum("crskl,ockl->ors", windows, weights(layer)), 0)
        x = x.reshape(x.shape[0], x.shape[1] // 2, 2, x.shape[2] // 2, 2).max((2, 4))
        row = next(at for at, key in enumerate(zip(layers, roles, strict=True)) if key == (layer, "pooled"))
        check(found["tensor/count"][row] == x.size, f"{layer}: {found['tensor/count'][row]} numbers, not {x.size}")
        for name, value in (("maximum", x.max()), ("mean", x.mean()), ("deviation", x.std())):
            check(abs(found[f"tensor/{name}"][row] - value) < 1e-4 * x.max(), f"{layer}: {name} {found[f'tensor/{name}'][row]}, not {value}")
        bins = np.histogram(x, 60, (x.min(), x.max()))[0]
        check(abs(found["tensor/histogram"][row] - bins).sum() <= 4, f"{layer}: {found['tensor/histogram'][row]}, not {bins}")


def case_a_slow_disk_of_the_data_is_no_hang(folder):
    """The others wait for the rank that reads, for longer than the 60 s of a collective."""
    strike = ["env", f"LD_PRELOAD={STRIKE}", "STRIKE=0:quantization:1:sleep=65"]
    result = run(mpirun(2) + [*strike, BIN / "gradsync-quantize", "--checkpoint", CHECKPOINTS, "--data", DATA, *QUICK, "--calibration-images", 20],
                 timeout=300).expect(0, "strike: rank 0, quantization")  # fmt: skip
    check(result.seconds > 60, f"{result.seconds:.0f} s")


def case_a_variant_that_cannot_be_quantized_is_left_out(folder):
    """A bias that fits int32 in units of the default scales, and not of the finer ones of other ranges."""
    quantize("--save", folder / "q.safetensors").expect(0)
    net = load_file(folder / "q.safetensors")
    largest = 2**30 * float(net["fc2.scale"][0] * net["fc3.weight_scale"][0])
    biased = changed_checkpoint(folder, "parameters/fc3.bias", lambda b: np.where(np.arange(b.size) == 0, 0.9 * largest, b))
    result = quantize("--output", folder / "all.h5", "--threads", 1, checkpoint=biased, quick=False, ranks=2).expect(0)
    left_out = re.findall(r"warning: variant '(.*)' is left out: .*the bias of channel 0 is", result.err)
    names = [name.decode() for name in numbers(folder / "all.h5")["step/name"]]
    check(left_out and "all, with bias" in names and not set(left_out) & set(names), f"{left_out} left out, {names} there: {result.err[-800:]}")
    run([BIN / "gradsync-report", folder / "all.h5", "--output", folder / "tables", "--format", "all"], timeout=300).expect(0)


def case_one_command_from_training_to_pictures(folder):
    """config/quantize on the data that the job file names; the second time it leaves what is there alone."""
    results = folder / "results"
    (folder / "job.cfg").write_text(f"""model = lenet\nsync = none\nranks = 1\ndata = {DATA}\nbatch-per-rank = 32
        iterations = 5\ncheckpoint-every = end\nthreads = 1\nresults = {results}\n""".replace("  ", ""))
    options = {"GRADSYNC_QUANTIZE_" + name: value for name, value in (("CALIBRATION_IMAGES", "50"), ("ABLATION", "no"))}
    command = [ROOT / "config/quantize", folder / "job.cfg", "--", "--seed", 2]
    run(command, environment=options, timeout=600).expect(0, "tables and pictures")
    made = {name: results / name for name in ("lenet-none-r1-int8.h5", "lenet-none-r1-int8.safetensors", "tables/ranges.csv", "tables/bias.png")}
    check(all(path.exists() for path in made.values()), f"missing: {[name for name, path in made.items() if not path.exists()]}")
    before = made["lenet-none-r1-int8.h5"].stat().st_mtime_ns
    run(command, environment=options, timeout=600).expect(0)
    check(made["lenet-none-r1-int8.h5"].stat().st_mtime_ns == before, "quantized again")


def case_one_command_in_a_narrow_terminal_and_without_checkpoints(folder):
    """The folder of the results is read from a table that is as wide as COLUMNS says."""
    results = folder / "results-in-a-folder-whose-name-is-far-longer-than-a-line-of-a-narrow-terminal-is/of-the-grid"
    (folder / "job.cfg").write_text(f"""model = lenet\nsync = none\nranks = 1\ndata = {DATA}\nbatch-per-rank = 32
        iterations = 5\nthreads = 1\nresults = {results}\n""".replace("  ", ""))
    options = {"GRADSYNC_QUANTIZE_CALIBRATION_IMAGES": "50", "GRADSYNC_QUANTIZE_ABLATION": "no", "COLUMNS": "60"}
    command = [ROOT / "config/quantize", folder / "job.cfg"]
    run(command, environment=options, timeout=600).expect(0, "tables and pictures")
    check((results / "lenet-none-r1-int8.h5").exists(), f"{list(results.iterdir())}")
    shutil.rmtree(results / "lenet-none-r1.checkpoints")
    run(command, environment=options, timeout=600).expect(0, "tables and pictures")


def case_bad_options(folder):
    refused(folder, 64, "calibration-images", "1 to", options=["--calibration-images", 0])
    refused(folder, 64, "--calibration-images: 701 images .* which has 640", "of at most 640", options=["--calibration-images", 701])
    for bits in (1, 9):
        refused(folder, 64, "weight-bits", "2 to 8", options=["--weight-bits", bits])
        refused(folder, 64, "activation-bits", "2 to 8", options=["--activation-bits", bits])
    refused(folder, 64, "calibrator", "entropy", options=["--calibrator", "entropie"])
    refused(folder, 66, "does not exist|No such file", checkpoint=folder / "none.safetensors")
    run([BIN / "gradsync-quantize"]).expect(64, "nothing to quantize")


def case_bad_checkpoints(folder):
    refused(folder, 65, "is of lenet, and --model says vgg11", options=["--model", "vgg11"])
    whole = next(CHECKPOINTS.glob("*.safetensors")).read_bytes()
    (folder / "flipped.safetensors").write_bytes(whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:])
    refused(folder, 65, "is refused: its SHA-256", checkpoint=folder / "flipped.safetensors")
    (folder / "cut.safetensors").write_bytes(whole[:-1000])
    refused(folder, 65, "is refused", checkpoint=folder / "cut.safetensors")
    (folder / "other.safetensors").write_bytes(b"no checkpoint at all")
    refused(folder, 65, "is refused", checkpoint=folder / "other.safetensors")
    nan = changed_checkpoint(folder, "parameters/fc1.weight", lambda w: np.where(np.arange(w.size) == 7, np.nan, w))
    refused(folder, 65, "value 7 of 'parameters/fc1.weight' is nan", checkpoint=nan)
    huge = changed_checkpoint(folder, "parameters/fc1.weight", lambda w: w / abs(w).max() * 3e38)
    refused(folder, 80, "logits are not all finite", "fix: ", checkpoint=huge)
    zero = changed_checkpoint(folder, "parameters/conv2.weight", lambda w: w * 0)
    refused(folder, 65, "layer conv2", checkpoint=zero)


def case_constant_activations(folder):
    dead = changed_checkpoint(folder, "parameters/conv2.weight", lambda w: -abs(w) - 0.01)
    refused(folder, 65, "layer conv2: its activations have no range: all .* values are 0", checkpoint=dead)


def case_a_checkpoint_of_another_network_is_refused(folder):
    data = next(CHECKPOINTS.glob("*.safetensors")).read_bytes()
    other = data.replace(b'"option.model":"lenet"', b'"option.model":"vgg11"')
    old = re.search(b'"sha256":"([0-9a-f]{64})"', data).group(1)
    zeroed = other.replace(old, b"0" * 64)
    (folder / "vgg.safetensors").write_bytes(zeroed.replace(b"0" * 64, hashlib.sha256(zeroed).hexdigest().encode()))
    refused(folder, 65, "is not of vgg11: it has no 'parameters/features.0.weight'", checkpoint=folder / "vgg.safetensors")


def case_saturation_is_warned_of(folder):
    result = quantize("--calibrator", "sigma", "--sigmas", 0.5, "--output", folder / "q.h5").expect(0)
    found = re.search(r"warning: layer conv1 is saturated: (\d+\.\d) % of its activations are clipped", result.err)
    check(found is not None and float(found.group(1)) > 1, f"no warning: {result.err[-500:]}")
    quiet = quantize("--calibrator", "min-max").expect(0)
    check("saturated" not in quiet.err, "a warning where nothing is clipped")


def case_nothing_is_overwritten(folder):
    for name, option in (("q.h5", "--output"), ("q.safetensors", "--save")):
        (folder / name).write_text("mine")
        quantize(option, folder / name).expect(73, "exists")
        check((folder / name).read_text() == "mine", "overwritten")
    quantize("--output", folder / "missing/q.h5").expect(73, "mkdir -p ")
    (folder / "new.h5.journal").write_text("of a job that was killed")
    quantize("--save", folder / "new.safetensors", "--output", folder / "new.h5").expect(73, "new.h5.journal' exists")
    quantize("--save", folder / "same.h5", "--output", folder / "same.h5").expect(64, "the same file")
    check(not (folder / "new.safetensors").exists() and not (folder / "same.h5").exists(), "half of what was asked for is there")


if __name__ == "__main__":
    sys.exit(run_cases(globals(), prepare, at_once=2))
