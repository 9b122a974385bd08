#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What crosses the wire: the bytes that a run records against the formulas, and against the counters of a network
interface between two ranks.

usage: traffic.py [NAME...]    (run by tests/run, which sets MPIRUN)
"""
import pathlib
import sys

from harness import BIN, Skip, check, mpirun, run, run_cases, synthetic
from hosts_harness import TwoHosts

DATA = ""
BEFORE_LAST, LAST = 4 * 10080, 4 * 850
S = 4 * (450 + 2400 + 48000) + BEFORE_LAST + LAST  # bytes of LeNet's gradients
BATCH = 8
IMAGE, LOGITS = 3 * 32 * 32 * 4, 10 * 4
CATEGORIES = ("gradients", "parameters", "buffers", "inputs", "metrics", "control", "optimizer", "checkpoint")
# Ethernet, IP and TCP with timestamps: what the counters of an interface hold of each packet beside its payload.
HEADER = 14 + 20 + 32


def prepare(folder) -> None:
    global DATA
    DATA = synthetic(folder, 640, 32)


def h5py_file(path):
    try:
        import h5py
    except ImportError:
        raise Skip("needs a Python with h5py (make deps)") from None
    return h5py.File(path)


def train(output, *options, ranks: int) -> None:
    evaluation = () if "--evaluate" in options else ("--evaluate", "none")
    run(mpirun(ranks) + [BIN / "gradsync-train", "--model", "lenet", "--data", DATA, "--threads", 1, "--batch-per-rank", BATCH,
                         "--lr", 0.01, "--iterations", 4, "--output", output, *evaluation, *options],
        timeout=300).expect(0)  # fmt: skip


def rows(output) -> dict:
    with h5py_file(output) as file:
        return {name: file[f"traffic/{name}"][:] for name in CATEGORIES[:6]}


def totals(output) -> dict:
    """By what and category, a value a rank: what training moved."""
    with h5py_file(output) as file:
        when = [text.decode() for text in file["traffic_total/when"][:]]
        start, end = when.index("start"), when.index("trained")
        return {what: {name: file[f"traffic_total/{what}"][end][at] - file[f"traffic_total/{what}"][start][at]
                       for at, name in enumerate(CATEGORIES)} for what in ("sent", "received", "calls")}  # fmt: skip


def case_gradients_are_those_of_the_formulas_exactly(folder) -> None:
    for ranks in (1, 2, 4):
        ring, rooted = 2 * (ranks - 1) * S // ranks, [2 * (ranks - 1) * S if rank == 0 else 2 * S for rank in range(ranks)]
        wanted = {"none": 0, "allreduce": ring, "ddp": ring, "c10d": ring, "gather-scatter": rooted if ranks > 1 else 0}
        for mode, bytes_ in wanted.items():
            output = folder / f"{mode}-{ranks}.h5"
            train(output, "--sync", mode, ranks=ranks)
            found = rows(output)
            check((found["gradients"] == bytes_).all(), f"{mode}, {ranks} ranks: {found['gradients'][-1]}, not {bytes_}")
            for other in ("parameters", "buffers", "inputs"):
                check((found[other] == 0).all(), f"{mode}, {ranks} ranks: {other} {found[other][-1]}")


def case_modes_that_send_less_send_what_their_formulas_say(folder) -> None:
    ranks = 4
    for mode, gradients, parameters in (("zero1", (ranks - 1) * S / ranks, (ranks - 1) * S / ranks), ("local-sgd", 0, 2 * (ranks - 1) * S / ranks),
                                        ("top-k", (ranks - 1) * 8 * S / 4 * 0.01, 0)):  # fmt: skip
        output = folder / f"{mode}.h5"
        train(output, "--sync", mode, *(("--local-steps", 1) if mode == "local-sgd" else ()), ranks=ranks)
        found = rows(output)
        # A part of each bucket is rounded up to a whole value.
        for name, wanted in (("gradients", gradients), ("parameters", parameters)):
            check((abs(found[name] - wanted) <= 8 * ranks * ranks).all(), f"{mode}: {name} {found[name][-1]}, not {wanted}")
    # Twice the parameters, but for the last two layers, which stay from one pass to the other; in the first iteration for the last one.
    output = folder / "fsdp.h5"
    train(output, "--sync", "fsdp", ranks=ranks)
    found = rows(output)
    for name, first, others in (("gradients", S, S), ("parameters", 2 * S - LAST, 2 * S - LAST - BEFORE_LAST)):
        for iterations, wanted in ((found[name][:1], first), (found[name][1:], others)):
            check((abs(iterations - wanted * (ranks - 1) / ranks) <= 40 * ranks).all(), f"fsdp: {name} {iterations}, not {wanted}")


def case_data_parallel_moves_images_outputs_gradients_and_parameters(folder) -> None:
    for ranks in (2, 4):
        output = folder / f"{ranks}.h5"
        train(output, "--sync", "data-parallel", ranks=ranks)
        found, others = rows(output), ranks - 1
        share = [others if rank == 0 else 1 for rank in range(ranks)]
        check((found["gradients"][-1] == [part * S for part in share]).all(), f"gradients {found['gradients'][-1]}")
        check((found["parameters"][-1] == [part * S for part in share]).all(), f"parameters {found['parameters'][-1]}")
        inputs, least = found["inputs"][-1], BATCH * (IMAGE + 2 * LOGITS)
        for rank in range(ranks):
            check(0 <= inputs[rank] - share[rank] * least <= share[rank] * 64, f"inputs {inputs}, at least {least} a rank")


def case_what_is_sent_is_received(folder) -> None:
    for mode in ("gather-scatter", "allreduce", "ddp", "c10d", "data-parallel", "powersgd", "top-k", "zero1", "fsdp"):
        output = folder / f"{mode}.h5"
        train(output, "--sync", mode, "--checkpoint-every", 2, "--evaluate", "shard", "--init", "broadcast", ranks=4)
        moved = totals(output)
        for name in CATEGORIES:
            sent, received = moved["sent"][name].sum(), moved["received"][name].sum()
            check(sent == received, f"{mode}: {name}: {sent} sent, {received} received")
        inside = rows(output)
        check((moved["sent"]["gradients"] > 0).any() and moved["calls"]["gradients"].min() >= 4, f"{mode}: {moved['calls']}")
        if mode in ("allreduce", "ddp", "c10d"):
            check((inside["gradients"].sum(axis=0) == moved["sent"]["gradients"]).all(), f"{mode}: rows and totals differ")
        check((moved["calls"]["checkpoint"] > 0).all() and (moved["calls"]["metrics"] >= 1).all(), f"{mode}: {moved['calls']}")
        check((moved["sent"]["optimizer"] == 0).all(), "no mode moves the optimizer's state")
        with h5py_file(output) as file:
            start = file["traffic_total/sent"][0]
        check(start[1].sum() == 3 * S, f"{mode}: --init broadcast sent {start[1]} before training")


def case_what_other_contenders_train_is_not_before_the_training_of_one(folder) -> None:
    for seed in (1, 2):  # in another order
        train(folder / f"{seed}.h5", "--compare", "none,ddp", "--seed", seed, "--no-calibrate", "--advise", 0, ranks=2)
        for output in folder.glob(f"{seed}-*.h5"):
            with h5py_file(output) as file:
                check((file["traffic_total/sent"][0][0] == 0).all(), f"{output}: gradients {file['traffic_total/sent'][0][0]} at the start")


def case_a_checkpoint_of_different_momenta_is_counted(folder) -> None:
    # data-parallel's other ranks hold no state of the optimizer; with none every rank has a network of its own.
    output = folder / "run.h5"
    train(output, "--sync", "none", "--checkpoint-every", 2, ranks=2)
    moved = totals(output)
    check(moved["sent"]["checkpoint"][1] >= 2 * S, f"rank 1 sent {moved['sent']['checkpoint']} for two checkpoints")
    check(moved["received"]["checkpoint"][0] >= 2 * S, f"rank 0 received {moved['received']['checkpoint']}")


# --- two ranks, each in a network of its own, with one link between ------------------------------------------


def payload(hosts: TwoHosts) -> dict:
    """What the first host's interface has counted, headers left out."""
    shown = hosts.counters()
    return {way: shown[way]["bytes"] - HEADER * shown[way]["packets"] for way in ("tx", "rx")}


def train_over(hosts: TwoHosts, folder: pathlib.Path, mode: str, iterations: int) -> tuple:
    """Interface counters and recorded totals of rank 0 in one run, whatever started it included."""
    output = folder / f"{mode}-{iterations}.h5"
    trainer = [BIN / "gradsync-train", "--model", "lenet", "--data", DATA, "--threads", 1, "--batch-per-rank", BATCH, "--evaluate", "none",
               "--sync", mode, "--lr", 0.001, "--epochs", 50, "--iterations", iterations, "--output", output]  # fmt: skip
    before = payload(hosts)
    run(hosts.mpirun(trainer, settings=hosts.on_the_wire()), timeout=400).expect(0)
    after = payload(hosts)
    return {way: after[way] - before[way] for way in before}, totals(output)


def case_the_interface_counts_the_same_bytes(folder) -> None:
    with TwoHosts(folder) as link:
        for mode in ("allreduce", "ddp", "gather-scatter", "data-parallel"):
            short_wire, short_file = train_over(link, folder, mode, 20)
            long_wire, long_file = train_over(link, folder, mode, 120)
            # What the start of MPI and of the job moves is in both, and out of the difference.
            for way, what in (("tx", "sent"), ("rx", "received")):
                wire = long_wire[way] - short_wire[way]
                counted = sum(int(long_file[what][name][0] - short_file[what][name][0]) for name in CATEGORIES)
                off = wire / counted - 1
                print(f"  {mode}: rank 0 {what} {counted / 100:.0f} B an iteration, the interface counted {off:+.2%}", flush=True)
                check(abs(off) <= 0.03, f"{mode}: rank 0 {what} {counted} B by the run file, {wire} B by the interface")


if __name__ == "__main__":
    sys.exit(run_cases(globals(), prepare, at_once=2))
