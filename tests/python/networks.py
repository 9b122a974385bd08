#!/usr/bin/env python3
"""Compares the networks with PyTorch's Python modules that hold the same weights: outputs in training
and in evaluation, the loss, every gradient, and how many operations PyTorch counts.

usage: networks.py    (run by tests/run, which sets TORCH_PYTHON; needs a Python with torch)
"""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DUMP = ROOT / "build/tests/dump_network"
MODELS = ("lenet", "lenet-no-bias", "vgg11", "resnet18", "resnet18-imagenet")


def reexecute_with_torch() -> None:
    """Starts this script again with a Python that has torch, or says SKIP."""
    try:
        import torch  # noqa: F401
        return
    except ImportError:
        pass
    other = os.environ.get("TORCH_PYTHON", "")
    if other and other != sys.executable and "GRADSYNC_TEST_AGAIN" not in os.environ:
        environment = os.environ | {"GRADSYNC_TEST_AGAIN": "1"}
        os.execve(other, [other, *sys.argv], environment)
    for model in MODELS:
        print(f"SKIP networks {model}: no Python with torch (LIBTORCH= without one)")
    sys.exit(0)


def read(path: str) -> tuple[dict, dict]:
    """The tensors by name, and the metadata."""
    import numpy
    import torch

    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    metadata, tensors = header.pop("__metadata__"), {}
    for name, entry in header.items():
        begin, end = (8 + length + at for at in entry["data_offsets"])
        values = numpy.frombuffer(data[begin:end], dtype="<f4").reshape(entry["shape"])
        tensors[name] = torch.from_numpy(values.copy()).double()
    return tensors, metadata


def counted_flop(model: str) -> dict:
    """By PyTorch's own counter, for one image."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    network, batch = make(model), 2
    with FlopCounterMode(display=False) as counter:
        outputs = network(torch.zeros(batch, 3, 32, 32))
        forward = counter.get_total_flops()
        outputs.sum().backward()
        both = counter.get_total_flops()
    return {"forward_flop": str(forward // batch), "backward_flop": str((both - forward) // batch)}


def lenet(biased: bool = True):
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(3, 6, 5, bias=False), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5, bias=False), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120, bias=False), nn.ReLU(), nn.Linear(120, 84, bias=False), nn.ReLU(), nn.Linear(84, 10, bias=biased),
    )  # fmt: skip


def vgg11():
    from torch import nn

    layers, channels = [], 3
    for width in (64, "pool", 128, "pool", 256, 256, "pool", 512, 512, "pool", 512, 512, "pool"):
        if width == "pool":
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
            channels = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 10))


def resnet18(imagenet: bool):
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, inputs, outputs, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(outputs)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(outputs)
            self.shortcut = None
            if stride != 1 or inputs != outputs:
                self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

        def forward(self, x):
            kept = x if self.shortcut is None else self.shortcut(x)
            y = torch.relu(self.bn1(self.conv1(x)))
            return torch.relu(self.bn2(self.conv2(y)) + kept)

    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False)] if imagenet else [nn.Conv2d(3, 64, 3, 1, 1, bias=False)]
    stem += [nn.BatchNorm2d(64), nn.ReLU()] + ([nn.MaxPool2d(3, 2, 1)] if imagenet else [])
    blocks, channels = [], 64
    for width in (64, 128, 256, 512):
        blocks += [Block(channels, width, 1 if width == 64 else 2), Block(width, width, 1)]
        channels = width
    tail = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000 if imagenet else 10)]
    return nn.Sequential(*stem, *blocks, *tail)


def make(model: str):
    return {
        "lenet": lenet,
        "lenet-no-bias": lambda: lenet(False),
        "vgg11": vgg11,
        "resnet18": lambda: resnet18(False),
        "resnet18-imagenet": lambda: resnet18(True),
    }[model]()


def differences(model: str) -> list[str]:
    import torch

    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([str(DUMP), model, f"{folder}/dump"], check=True)
        ours, metadata = read(f"{folder}/dump")
    network = make(model).double()
    names = [name.removeprefix("parameter.") for name in ours if name.startswith("parameter.")]
    # JSON sorts the names; the order of the modules is that of equal shapes within each prefix.
    theirs = dict(network.named_parameters())
    order = match_names(names, list(theirs))
    with torch.no_grad():
        for mine, other in order.items():
            theirs[other].copy_(ours[f"parameter.{mine}"].view_as(theirs[other]))
    outputs = network(ours["images"])
    loss = torch.nn.functional.cross_entropy(outputs.float(), torch.arange(8))
    loss.backward()
    found = [] if close(outputs, ours["outputs"]) else ["outputs"]
    if not close(loss, ours["loss"].reshape(())):
        found.append("loss")
    found += [f"gradient of {mine}" for mine, other in order.items() if not close(theirs[other].grad, ours[f"gradient.{mine}"])]
    network.eval()
    if not close(network(ours["images"]), ours["outputs_eval"]):
        found.append("outputs in evaluation")
    if counted_flop(model) != metadata:
        found.append(f"operations: {metadata}, PyTorch {counted_flop(model)}")
    return found


def match_names(ours: list[str], theirs: list[str]) -> dict[str, str]:
    """Pairs the parameters in the order of the modules; natural sort puts features.10 after features.9."""
    rank = {"conv1": 0, "bn1": 1, "conv2": 2, "bn2": 3, "shortcut": 4, "features": 0, "blocks": 5, "classifier": 9,
            "fc1": 6, "fc2": 7, "fc3": 8, "fc": 9, "weight": 0, "bias": 1}  # fmt: skip

    def key(name: str):
        return [int(part) if part.isdigit() else rank[part] for part in name.split(".")]

    return dict(zip(sorted(ours, key=key), theirs, strict=True))


def close(a, b) -> bool:
    """Within 1e-4 of the largest value: other kernels sum in another order."""
    return bool((a - b).abs().max() <= 1e-4 * max(float(b.abs().max()), 1e-3))


def main() -> int:
    reexecute_with_torch()
    failed = 0
    for model in MODELS:
        try:
            found = differences(model)
        except Exception as error:  # a crash of one network must not hide the others
            found = [repr(error)]
        failed += bool(found)
        print(f"FAIL networks {model}: differ in {', '.join(found[:5])}" if found else f"PASS networks {model}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
