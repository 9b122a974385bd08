#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The same recipe in Python's PyTorch, one process, for comparison with gradsync-train: ResNet-18 (CIFAR form),
SGD lr 0.1, momentum 0.9, weight decay 5e-4, global batch 128, crop and flip, no schedule.

usage: pytorch_resnet18.py FOLDER-WITH-DATA_BATCH_*.BIN [--epochs 2] [--bf16] [--threads 2]
with the Python that holds torch (make print-TORCH_PYTHON). Beside it:
  mpirun -n 2 build/bin/gradsync-train --model resnet18 --sync ddp --batch-global 128 --epochs 2 --lr 0.1 --data FOLDER
"""
import argparse
import pathlib
import sys
import time

import numpy
import torch

sys.path.insert(0, str(pathlib.Path(__file__).absolute().parents[1] / "tests/python"))
from networks import resnet18  # noqa: E402

MEAN = torch.tensor((0.4914, 0.4822, 0.4465)).view(1, 3, 1, 1)
DEVIATION = torch.tensor((0.2470, 0.2435, 0.2616)).view(1, 3, 1, 1)


def read(folder: pathlib.Path, names: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
    records = numpy.concatenate([numpy.fromfile(folder / name, dtype=numpy.uint8).reshape(-1, 3073) for name in names])
    labels = torch.from_numpy(records[:, 0].astype(numpy.int64))
    return torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy()), labels


def augmented(images: torch.Tensor) -> torch.Tensor:
    padded = torch.nn.functional.pad(images, (4, 4, 4, 4))
    out = torch.empty_like(images)
    for i, (top, left, flip) in enumerate(zip(*(torch.randint(0, n, (len(images),)).tolist() for n in (9, 9, 2)))):
        crop = padded[i, :, top : top + 32, left : left + 32]
        out[i] = crop.flip(2) if flip else crop
    return out


def normalized(images: torch.Tensor) -> torch.Tensor:
    return ((images.float() / 255 - MEAN) / DEVIATION).contiguous(memory_format=torch.channels_last)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bf16", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    images, labels = read(options.folder, [f"data_batch_{i}.bin" for i in range(1, 6)])
    test_images, test_labels = read(options.folder, ["test_batch.bin"])
    network = resnet18(False).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    cast = lambda: torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.bf16)  # noqa: E731
    for epoch in range(options.epochs):
        start, loss_sum, right = time.monotonic(), 0.0, 0
        for step, batch in enumerate(torch.randperm(len(images)).split(options.batch)):
            with cast():
                outputs = network(normalized(augmented(images[batch])))
            loss = torch.nn.functional.cross_entropy(outputs.float(), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss_sum += float(loss) * len(batch)
            right += int((outputs.argmax(1) == labels[batch]).sum())
            if (step + 1) % 100 == 0:
                print(f"epoch {epoch + 1} iteration {step + 1} loss {float(loss):.4f}", flush=True)
        seconds = time.monotonic() - start
        network.eval()
        with torch.no_grad(), cast():
            parts = zip(test_images.split(256), test_labels.split(256))
            correct = sum(int((network(normalized(x)).argmax(1) == y).sum()) for x, y in parts)
        network.train()
        print(f"epoch {epoch + 1}: train loss {loss_sum / len(images):.4f}, train accuracy {100 * right / len(images):.2f} %, "
              f"test accuracy {100 * correct / len(test_images):.2f} %, {seconds:.1f} s", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
