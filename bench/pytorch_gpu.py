#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The peer of gradsync-train on one GPU: Python's PyTorch as a practiced user writes it. All images on the device
as bytes, augmentation there, autocast, channels_last, cudnn.benchmark, fused SGD; with --compile torch.compile
of the network. Prints one JSON line: seconds of each epoch, what it ran on, the last loss.

usage: pytorch_gpu.py FOLDER-WITH-DATA_BATCH_*.BIN --model resnet18 --batch 512 [--epochs 4] [--compile]
"""
import argparse
import json
import pathlib
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).absolute().parents[1] / "tests/python"))
from networks import make  # noqa: E402

MEAN = (0.4914, 0.4822, 0.4465)
DEVIATION = (0.2470, 0.2435, 0.2616)
PADDING = 4


def read(folder: pathlib.Path) -> tuple[torch.Tensor, torch.Tensor]:
    files = [folder / f"data_batch_{i}.bin" for i in range(1, 6)]
    records = torch.cat([torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.uint8).view(-1, 3073) for file in files])
    return records[:, 1:].reshape(-1, 3, 32, 32).contiguous(), records[:, 0].long()


class Images:
    """Crops, flips and normalizes whole batches where they lie."""

    def __init__(self, images: torch.Tensor, device: torch.device):
        self.padded = torch.nn.functional.pad(images.to(device), (PADDING,) * 4)
        self.mean = torch.tensor(MEAN, device=device).view(1, 3, 1, 1) * 255
        self.scale = 1 / (torch.tensor(DEVIATION, device=device).view(1, 3, 1, 1) * 255)
        self.range = torch.arange(32, device=device)

    def batch(self, index: torch.Tensor) -> torch.Tensor:
        n, device = len(index), index.device
        rows = torch.randint(0, 2 * PADDING + 1, (n, 1), device=device) + self.range
        columns = torch.randint(0, 2 * PADDING + 1, (n, 1), device=device) + self.range
        columns = torch.where(torch.rand(n, 1, device=device) < 0.5, columns.flip(1), columns)
        crops = self.padded[index[:, None, None], :, rows[:, :, None], columns[:, None, :]]  # [n, 32, 32, 3]
        crops = crops.permute(0, 3, 1, 2)  # channels_last already
        return (crops.float() - self.mean) * self.scale


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="bf16")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False  # as gradsync-train without --tf32
    device = torch.device(options.device)
    pixels, labels = read(options.folder)
    images, labels = Images(pixels, device), labels.to(device)
    network = make(options.model).to(device).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, fused=True)
    forward = torch.compile(network) if options.compile else network
    times, loss = [], None
    for _ in range(options.epochs):
        wait(device)
        start = time.monotonic()
        for index in torch.randperm(len(labels), device=device).split(options.batch):
            batch = images.batch(index)
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=options.precision == "bf16"):
                loss = torch.nn.functional.cross_entropy(forward(batch), labels[index])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        wait(device)
        times.append(time.monotonic() - start)
    name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    print(json.dumps({"program": "compile" if options.compile else "eager", "model": options.model, "batch": options.batch,
                      "epoch_s": times, "loss": float(loss.detach()), "device": name, "torch": torch.__version__}))  # fmt: skip


if __name__ == "__main__":
    main()
