#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Trains LeNet on 1, 2, 3 and 8 ranks with the modes that send less, and with PyTorch's own: powerSGD_hook, PeriodicModelAverager,
ZeroRedundancyOptimizer and fully_shard (FSDP2) over Gloo. Both begin at one checkpoint, see the same images, and must come to the same parameters
and have the same losses.

usage: less.py    (run by tests/run, which sets MPIRUN and TORCH_PYTHON; needs a Python with torch)
"""
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).absolute().parents[1] / "e2e"))
BATCH_OF = {1: 16, 2: 16, 3: 16, 8: 8}  # by the number of ranks
SEED, IMAGES, STEPS, RANK, PERIOD = 7, 512, 8, 2, 3
RATE, MOMENTUM = 0.05, 0.9
LIMIT, LOSS_LIMIT = 2e-4, 2e-4  # of the way of the parameters; absolute, of a loss that is printed with four decimals
# How each is trained by both, and what PyTorch's is called.
PEERS = {"powersgd": ("--powersgd-rank", RANK, "--powersgd-start", 3), "local-sgd": ("--local-steps", PERIOD, "--local-start", 3), "zero1": (), "fsdp": ()}
# Iterations before the checkpoint at which both begin. A part of the optimizer's state lies otherwise in theirs, so there is none yet.
SAME = {"powersgd": 3, "local-sgd": 3, "zero1": 0, "fsdp": 0}


def read(path) -> dict:
    """The float32 tensors of a checkpoint by name."""
    import numpy

    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header, tensors = json.loads(data[8 : 8 + length]), {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = (8 + length + at for at in entry["data_offsets"])
            tensors[name] = numpy.frombuffer(data[begin:end], dtype="<f4").reshape(entry["shape"]).copy()
    return tensors


def order_of_epoch() -> list:
    """The order in which gradsync shuffles the first epoch."""
    mask = (1 << 64) - 1

    def splitmix(x):
        x = (x + 0x9E3779B97F4A7C15) & mask
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        return x ^ (x >> 31)

    order = list(range(IMAGES))
    for last in range(IMAGES - 1, 0, -1):
        random = SEED
        for key in (1, 0, last):
            random = splitmix(random) ^ key
        other = (splitmix(random) >> 32) * (last + 1) >> 32
        order[last], order[other] = order[other], order[last]
    return order


def images(folder: str):
    import numpy

    rows = numpy.concatenate([numpy.fromfile(path, numpy.uint8).reshape(-1, 3073) for path in sorted(pathlib.Path(folder).glob("data_batch_*.bin"))])
    mean, deviation = numpy.array([0.4914, 0.4822, 0.4465]), numpy.array([0.2470, 0.2435, 0.2616])
    pixels = rows[:, 1:].reshape(-1, 3, 32, 32) / 255.0
    return ((pixels - mean[:, None, None]) / deviation[:, None, None]).astype("float32"), rows[:, 0].astype("int64")


def low_rank_hook(factors):
    """PyTorch's, with our first factors, which it would draw."""
    import torch
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd

    of_columns = {q.shape[1]: torch.from_numpy(q) for q in factors}

    def hook(state, bucket):
        if state.iter >= state.start_powerSGD_iter and bucket.index() not in state.q_memory_dict:
            views = [gradient.view(gradient.shape[0], -1) for gradient in bucket.gradients()]
            views = [view for view in views if 2 * RANK * sum(view.shape) < view.numel()]
            state.p_memory_dict[bucket.index()] = torch.empty(sum(view.shape[0] for view in views) * RANK)
            state.q_memory_dict[bucket.index()] = torch.cat([of_columns[view.shape[1]].t().flatten() for view in views])
        return powersgd.powerSGD_hook(state, bucket)

    return powersgd.PowerSGDState(None, matrix_approximation_rank=RANK, start_powerSGD_iter=2, min_compression_rate=2), hook


def train_with_torch(ranks: int, rank: int, folder: str) -> None:
    """One rank, every mode."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=ranks)
    for mode in PEERS:
        train_one_with_torch(mode, ranks, rank, folder)
    dist.barrier()
    os._exit(0)  # Gloo's threads now and then abort when its groups are taken down


def train_one_with_torch(mode: str, ranks: int, rank: int, folder: str) -> None:
    """From the checkpoint after SAME iterations on; writes how far it ends from the last checkpoint, and its losses."""
    import numpy
    import torch
    from networks import lenet
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    begin, end = (read(f"{folder}/{mode}-{which}.safetensors") for which in ("begin", "end"))
    own = f"rank{rank}/" if rank else ""
    pixels, labels = (torch.from_numpy(values) for values in images(f"{folder}/data"))
    order = order_of_epoch()
    network = lenet()
    names = [name for name in begin if name.startswith("parameters/")]
    names.sort(key=lambda name: ("fc" in name, name.replace("weight", "a")))

    def backward(step):
        batch = [order[step * BATCH_OF[ranks] * ranks + rank + i * ranks] for i in range(BATCH_OF[ranks])]
        loss = torch.nn.functional.cross_entropy(wrapped(pixels[batch]), labels[batch])
        loss.backward()
        return loss.item()

    def values_of(tensors, name):
        return torch.from_numpy(tensors.get(own + name, tensors[name]))

    wrapped = network if mode in ("local-sgd", "fsdp") else DistributedDataParallel(network)
    if mode == "powersgd":
        wrapped.register_comm_hook(*low_rank_hook([q for name, q in sorted(begin.items()) if name.startswith("mode/factor/")]))
    for _ in range(2):  # DDP orders its buckets, and the hook does not compress yet
        backward(0)
    for parameter, name in zip(network.parameters(), names, strict=True):
        parameter.data.copy_(values_of(begin, name))
        parameter.grad = None
    made = {"lr": RATE, "momentum": MOMENTUM}
    if mode == "zero1":
        optimizer = ZeroRedundancyOptimizer(network.parameters(), torch.optim.SGD, **made)
    elif mode == "fsdp":
        for part in (*network.children(), network):
            fully_shard(part)
        optimizer = torch.optim.SGD(network.parameters(), **made)
    else:
        optimizer = torch.optim.SGD(network.parameters(), **made)
        for parameter, name in zip(network.parameters(), names, strict=True):
            optimizer.state[parameter]["momentum_buffer"] = values_of(begin, name.replace("parameters/", "velocity/")).clone()
    averager = PeriodicModelAverager(PERIOD)
    losses = []
    for step in range(SAME[mode], STEPS):
        losses.append(backward(step))
        optimizer.step()
        if mode == "local-sgd":
            averager.average_parameters(network.parameters())
        optimizer.zero_grad()

    def whole(parameter):
        return (parameter.full_tensor() if mode == "fsdp" else parameter).detach()

    away = max(float((whole(parameter) - values_of(end, name)).norm() / (values_of(end, name) - values_of(begin, name)).norm())
               for parameter, name in zip(network.parameters(), names, strict=True))  # fmt: skip
    moved = max(float(numpy.abs(end[name] - begin[name]).max()) for name in names)
    pathlib.Path(f"{folder}/{mode}-{rank}.json").write_text(json.dumps([away, moved, losses]))


def train_ours(mode: str, ranks: int, folder: pathlib.Path, iterations: int, which: str) -> list:
    """The mean losses of its iterations."""
    from harness import BIN, mpirun, run

    output = folder / f"{mode}-{which}.h5"
    rate = RATE if iterations else 1e-30  # one that leaves the parameters what they were
    result = run(mpirun(ranks) + [BIN / "gradsync-train", "--model", "lenet", "--data", folder / "data", "--sync", mode, *PEERS[mode],
                                  "--layout", "nchw", "--no-augment", "--seed", SEED, "--lr", rate, "--momentum", MOMENTUM, "--weight-decay", 0,
                                  "--batch-per-rank", BATCH_OF[ranks], "--threads", 1, "--evaluate", "none", "--iterations", max(1, iterations),
                                  "--output", output, "--checkpoint-every", "end", "--log-every", 1]).expect(0)  # fmt: skip
    (checkpoint,) = folder.glob(f"{mode}-{which}.checkpoints/*.safetensors")
    checkpoint.rename(folder / f"{mode}-{which}.safetensors")
    return [float(loss) for loss in re.findall(r"iteration \d+ loss ([\d.]+)", result.out)]


def wrong_with(mode: str, ranks: int, folder: pathlib.Path, losses: list) -> str:
    theirs = [json.loads((folder / f"{mode}-{rank}.json").read_text()) for rank in range(ranks)]
    away, moved = max(one[0] for one in theirs), min(one[1] for one in theirs)
    print(f"less {mode}: {ranks} ranks end at most {away:.1e} of their way from PyTorch's parameters")
    if not (away < LIMIT and moved > 0):
        return f"the parameters end {away:.1e} of their way from PyTorch's, and moved by {moved:.1e}"
    means = [sum(of_ranks) / ranks for of_ranks in zip(*(one[2] for one in theirs), strict=True)]
    ours = losses[-len(means) :]
    if len(ours) != len(means) or any(abs(a - b) > LOSS_LIMIT for a, b in zip(ours, means)):
        return f"losses {ours}, and PyTorch's {means}"
    return ""


def main() -> int:
    names = [f"{mode} on {ranks} ranks" for ranks in BATCH_OF for mode in PEERS]
    if not os.environ.get("TORCH_PYTHON"):
        for name in names:
            print(f"SKIP less {name}: no Python with torch (LIBTORCH= without one)")
        return 0
    from harness import BIN, run

    failed = 0
    for ranks in BATCH_OF:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            run([BIN / "gradsync-dataset", "synthesize", "--to", folder / "data", "--train", IMAGES, "--test", 16]).expect(0)
            losses = {}
            for mode in PEERS:
                train_ours(mode, ranks, folder, SAME[mode], "begin")
                losses[mode] = train_ours(mode, ranks, folder, STEPS, "end")
            theirs = [subprocess.Popen([os.environ["TORCH_PYTHON"], __file__, str(ranks), str(rank), folder]) for rank in range(ranks)]
            ended = not any([one.wait(timeout=300) for one in theirs])
            for mode in PEERS:
                wrong = wrong_with(mode, ranks, folder, losses[mode]) if ended else "PyTorch's side failed"
                failed += bool(wrong)
                print(f"FAIL less {mode} on {ranks} ranks: {wrong}" if wrong else f"PASS less {mode} on {ranks} ranks")
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train_with_torch(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    else:
        sys.exit(main())
