#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Trains LeNet on several ranks with the modes that send less, and with PyTorch's own: powerSGD_hook, PeriodicModelAverager,
ZeroRedundancyOptimizer and fully_shard (FSDP2) over Gloo. Both begin at one checkpoint, see the same images, and must come to the same parameters.

usage: less.py    (run by tests/run, which sets MPIRUN and TORCH_PYTHON; needs a Python with torch)
"""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).absolute().parents[1] / "e2e"))
RANKS, BATCH, SEED, IMAGES, SAME, STEPS, RANK, PERIOD = 2, 16, 7, 512, 3, 8, 2, 3
RATE, MOMENTUM = 0.05, 0.9
LIMIT = 2e-4
# How each is trained by both, and what PyTorch's is called.
PEERS = {"powersgd": ("--powersgd-rank", RANK, "--powersgd-start", SAME), "local-sgd": ("--local-steps", PERIOD, "--local-start", SAME), "zero1": (), "fsdp": ()}
SHARDED = ("zero1", "fsdp")


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


def train_with_torch(mode: str, rank: int, folder: str) -> None:
    """One rank: from the checkpoint after SAME iterations on, and writes how far it ends from the last checkpoint."""
    import numpy
    import torch
    import torch.distributed as dist
    from networks import lenet
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/{mode}.rendezvous", rank=rank, world_size=RANKS)
    begin, end = (read(f"{folder}/{mode}-{which}.safetensors") for which in ("begin", "end"))
    own = f"rank{rank}/" if rank else ""
    pixels, labels = (torch.from_numpy(values) for values in images(f"{folder}/data"))
    order = order_of_epoch()
    network = lenet()
    names = [name for name in begin if name.startswith("parameters/")]
    names.sort(key=lambda name: ("fc" in name, name.replace("weight", "a")))

    def backward(step):
        batch = [order[(step * BATCH * RANKS + rank + i * RANKS) % IMAGES] for i in range(BATCH)]
        torch.nn.functional.cross_entropy(wrapped(pixels[batch]), labels[batch]).backward()

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
    made = {"lr": RATE} if mode in SHARDED else {"lr": RATE, "momentum": MOMENTUM}
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
    for step in range(SAME, STEPS):
        backward(step)
        optimizer.step()
        if mode == "local-sgd":
            averager.average_parameters(network.parameters())
        optimizer.zero_grad()

    def whole(parameter):
        return (parameter.full_tensor() if mode == "fsdp" else parameter).detach()

    away = max(float((whole(parameter) - values_of(end, name)).norm() / (values_of(end, name) - values_of(begin, name)).norm())
               for parameter, name in zip(network.parameters(), names, strict=True))  # fmt: skip
    moved = max(float(numpy.abs(end[name] - begin[name]).max()) for name in names)
    pathlib.Path(f"{folder}/{mode}-{rank}.txt").write_text(f"{away} {moved}")
    dist.barrier()
    os._exit(0)  # Gloo's threads now and then abort when its groups are taken down


def train_ours(mode: str, folder: pathlib.Path, iterations: int, which: str) -> None:
    from harness import BIN, mpirun, run

    output = folder / f"{mode}-{which}.h5"
    momentum = 0 if mode in SHARDED else MOMENTUM  # a shard of the state lies otherwise in theirs
    run(mpirun(RANKS) + [BIN / "gradsync-train", "--model", "lenet", "--data", folder / "data", "--sync", mode, *PEERS[mode],
                         "--layout", "nchw", "--no-augment", "--seed", SEED, "--lr", RATE, "--momentum", momentum, "--weight-decay", 0,
                         "--batch-per-rank", BATCH, "--threads", 1, "--evaluate", "none", "--iterations", iterations,
                         "--output", output, "--checkpoint-every", "end"]).expect(0)  # fmt: skip
    (checkpoint,) = folder.glob(f"{mode}-{which}.checkpoints/*.safetensors")
    checkpoint.rename(folder / f"{mode}-{which}.safetensors")


def check(mode: str, folder: pathlib.Path) -> str:
    """Returns what is wrong, or nothing."""
    train_ours(mode, folder, SAME, "begin")
    train_ours(mode, folder, STEPS, "end")
    theirs = [subprocess.Popen([os.environ["TORCH_PYTHON"], __file__, mode, str(rank), folder]) for rank in range(RANKS)]
    if any(one.wait(timeout=300) for one in theirs):
        return "PyTorch's side failed"
    for rank in range(RANKS):
        away, moved = map(float, (folder / f"{mode}-{rank}.txt").read_text().split())
        print(f"less {mode}: rank {rank} ends {away:.1e} of its way from PyTorch's parameters")
        if not (away < LIMIT and moved > 0):
            return f"rank {rank} ends {away:.1e} of its way from PyTorch's parameters, and moved by {moved:.1e}"
    return ""


def main() -> int:
    if not os.environ.get("TORCH_PYTHON"):
        for mode in PEERS:
            print(f"SKIP less {mode}: no Python with torch (LIBTORCH= without one)")
        return 0
    from harness import BIN, run

    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run([BIN / "gradsync-dataset", "synthesize", "--to", folder / "data", "--train", IMAGES, "--test", 16]).expect(0)
        for mode in PEERS:
            wrong = check(mode, folder)
            failed += bool(wrong)
            print(f"FAIL less {mode}: {wrong}" if wrong else f"PASS less {mode}")
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train_with_torch(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    else:
        sys.exit(main())
