#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Opens a run file as its users do: h5py, pandas, xarray. Usage: open_run.py FILE

Prints one line a check and exits 1 if one fails. Needs h5py, pandas, xarray, h5netcdf and netCDF4.
"""
import importlib.util
import sys

import h5py
import numpy as np
import pandas as pd
import xarray as xr

PHASES = ("iteration data forward backward optimizer compute comm_busy hidden exposed wait other convert").split()
PARTS = ("compute", "exposed", "wait", "other")
STEPS = "recorded_iterations"
GROUPS = {"iteration": (STEPS,), "time": (STEPS, "ranks"), "traffic": (STEPS, "ranks"),
          "bucket": (STEPS, "buckets", "ranks"), "epoch": ("recorded_epochs", "ranks"), "topology": ("ranks",)}
# Only in files that hold something there.
SOMETIMES = {"calibration": ("calibrations",), "counterfactual": ("windows", "ranks"), "clock": ("readings", "ranks")}

failures = 0


def check(passed, text):
    global failures
    failures += not passed
    print(("ok    " if passed else "FAILED ") + text)


def text(value):
    """Texts are of fixed length, which h5py hands over as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def check_h5py(path):
    with h5py.File(path) as run:
        schema, status = text(run.attrs["schema"]), text(run.attrs["status"])
        check(schema == "gradsync-run/3", f"h5py: schema {schema}")
        check(status in ("complete", "partial", "running"), f"h5py: status {status}")
        rows, ranks = int(run.attrs["valid_rows"]), run["topology/rank"].shape[0]
        check(run["iteration/number"].shape == (rows,), f"h5py: {rows} iterations, {ranks} ranks")
        for name in [f"time/{phase}" for phase in PHASES] + ["time/begin", "loss", "correct"]:
            check(run[name].shape == (rows, ranks), f"h5py: /{name} has the shape {run[name].shape}")
        buckets = run["bucket/bytes"].shape[1]
        for name in ("ready", "start", "arrival", "end"):
            check(run[f"bucket/{name}"].shape == (rows, buckets, ranks), f"h5py: /bucket/{name} {run[f'bucket/{name}'].shape}")
        bare = []
        run.visititems(lambda name, item: bare.append(name) if isinstance(item, h5py.Dataset) and not
                       {"units", "long_name"} <= set(item.attrs) else None)
        check(not bare, f"h5py: data sets without units or long_name: {bare}")
        model = run["config/model"]
        check("source" in model.attrs, f"h5py: model {model.asstr()[()]}, from the {text(model.attrs['source'])}")
        time = {phase: run[f"time/{phase}"][:] for phase in PHASES}
        check_numbers(time, run["bucket/kind"][:], run["bucket/end"][:])
        return rows, ranks


def check_numbers(time, kind, end):
    measured = np.isfinite(time["iteration"])
    parts = sum(time[part] for part in PARTS)
    gap = np.nanmax(np.abs(parts / time["iteration"] - 1)[measured], initial=0)
    check(gap <= 0.01, f"h5py: compute + exposed + wait + other is the iteration within {100 * gap:.2g} %")
    busy = time["hidden"] + time["exposed"] - time["comm_busy"]
    check(np.nanmax(np.abs(busy), initial=0) < 1e-9, "h5py: hidden + exposed is comm_busy")
    for phase in ("iteration", "forward", "backward", "compute"):  # only the root of data-parallel has an optimizer
        check(not np.any(time[phase] == 0), f"h5py: no {phase} time is 0")
    check(np.all(np.isnan(end[kind == 255])), "h5py: a collective that did not take place is NaN, not 0")


def check_pandas(path, rows, ranks):
    with h5py.File(path) as run:
        frame = pd.DataFrame(run["time/iteration"][:])
        check(frame.shape == (rows, ranks), f"pandas: /time/iteration {frame.shape}, median {frame.stack().median() * 1e3:.3f} ms")


def check_xarray(path, rows, ranks):
    with h5py.File(path) as run:
        groups = GROUPS | {group: dimensions for group, dimensions in SOMETIMES.items() if group in run}
    for group, dimensions in groups.items():
        with xr.open_dataset(path, group=group, engine="h5netcdf") as data:
            check(set(data.sizes) == set(dimensions), f"xarray: /{group} has the dimensions {tuple(data.sizes)}")
            data.load()
    with xr.open_dataset(path, group="time", engine="h5netcdf") as time:
        check(time["iteration"].dims == (STEPS, "ranks"), f"xarray: /time/iteration {time['iteration'].dims}")
        check(time["iteration"].shape == (rows, ranks), "xarray: the same shape as h5py")
        check(time["iteration"].attrs["units"] == "s", "xarray: /time/iteration in s")
        mean = (time["compute"] / time["iteration"]).mean(STEPS)
        check(mean.dims == ("ranks",), f"xarray: share of compute per rank {mean.values.round(3)}")
    with xr.open_dataset(path, engine="h5netcdf") as root:
        check(root["loss"].dims == (STEPS, "ranks"), f"xarray: /loss {root['loss'].dims}")
        check(list(root["ranks"].values) == list(range(ranks)), "xarray: the ranks are a coordinate")


def check_datatree(path, rows, ranks):
    """Every data set of the file in one tree, by both engines, with the same values."""
    names = []
    with h5py.File(path) as run:
        run.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        for engine in ("h5netcdf", *(["netcdf4"] if importlib.util.find_spec("netCDF4") else [])):
            with xr.open_datatree(path, engine=engine) as tree:
                missing = [name for name in names if name.rpartition("/")[2] not in tree[name.rpartition("/")[0] or "/"].variables]
                check(not missing, f"xarray: {len(names)} data sets in the tree of {engine}, missing {missing}")
                check(tree["time/iteration"].shape == (rows, ranks), f"xarray: /time/iteration in the tree of {engine}")
                check(text(tree["config/iterations"].values.item()) == run["config/iterations"].asstr()[()], f"xarray: /config/iterations by {engine}")
                tree.load()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    rows, ranks = check_h5py(sys.argv[1])
    check_pandas(sys.argv[1], rows, ranks)
    check_xarray(sys.argv[1], rows, ranks)
    check_datatree(sys.argv[1], rows, ranks)
    print(f"{failures} failed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
