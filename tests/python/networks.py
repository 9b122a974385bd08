#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares the networks with PyTorch's Python modules that hold the same weights: outputs in training
and in evaluation, the loss, every gradient, and how many operations PyTorch counts.

usage: networks.py    (run by tests/run, which sets TORCH_PYTHON and PEER_PYTHON; needs a Python with torch)
"""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).absolute().parents[2]
DUMP = ROOT / "build/tests/dump_network"
# Samples of each, and of tokens how many; few where a pass is long.
MODELS = {"lenet": (8,), "lenet-no-bias": (8,), "vgg11": (8,), "resnet18": (8,), "resnet18-imagenet": (8,), "mlp:96x3": (8,),
          "gpt2-small": (2, 12), "resnet50": (2,), "vit-b16": (2,), "convolutions": (2,)}  # fmt: skip
FROM_TORCHVISION = ("resnet50", "vit-b16")
# TorchScript modules, of images of 3 x 32 x 32 and ten classes.
SCRIPTED = ("convolutions",)


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


def counted_flop(model: str, samples) -> dict:
    """By PyTorch's own counter, for one sample."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    network, batch = convolutions(grouped=False) if model == "convolutions" else make(model), len(samples)
    # As products of matrices: its counter has no formula for the fused attention of CPUs.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        outputs = network(torch.zeros_like(samples, dtype=torch.float32))
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


def mlp():
    from torch import nn

    layers, inputs = [], 3072
    for _ in range(3):
        layers += [nn.Linear(inputs, 96), nn.ReLU()]
        inputs = 96
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(96, 10))


def gpt2():
    """GPT-2 small, with PyTorch's attention and one matrix for embedding and output."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1 = nn.LayerNorm(768)
            self.attention = nn.MultiheadAttention(768, 12, batch_first=True)
            self.ln_2 = nn.LayerNorm(768)
            self.mlp = nn.Sequential(nn.Linear(768, 3072), nn.GELU("tanh"), nn.Linear(3072, 768))

        def forward(self, x):
            y, later = self.ln_1(x), torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            x = x + self.attention(y, y, y, attn_mask=later, need_weights=False)[0]
            return x + self.mlp(self.ln_2(x))

    class Gpt2(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(50257, 768), nn.Embedding(1024, 768)
            self.blocks = nn.Sequential(*(Block() for _ in range(12)))
            self.ln = nn.LayerNorm(768)

        def forward(self, tokens):
            tokens = tokens.long()
            x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
            return self.ln(self.blocks(x)) @ self.tokens.weight.T

    return Gpt2()


def convolutions(grouped: bool = True):
    """Of every kind: strided, padded, dilated, grouped, transposed, transposed and grouped."""
    import torch
    from torch import nn

    class Apart(nn.Module):
        """A grouped convolution as one of each group: PyTorch counts the gradient of its weight once, not once a group."""

        def __init__(self, whole):
            super().__init__()
            self.groups = whole.groups
            self.parts = nn.ModuleList()
            for _ in range(whole.groups):
                sizes = (whole.in_channels // whole.groups, whole.out_channels // whole.groups, whole.kernel_size, whole.stride, whole.padding)
                self.parts.append(type(whole)(*sizes, dilation=whole.dilation, bias=False))

        def forward(self, x):
            return torch.cat([part(one) for part, one in zip(self.parts, x.chunk(self.groups, 1))], 1)

    layers = [
        nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 12, 3, 1, 2, dilation=2, groups=4), nn.ConvTranspose2d(12, 6, 4, 2, 1),
        nn.ConvTranspose2d(6, 4, 3, 1, 0, groups=2, dilation=2), nn.Conv2d(4, 4, 5, 3, groups=4), nn.AdaptiveAvgPool2d(3),
    ]  # fmt: skip
    if not grouped:
        layers = [Apart(layer) if getattr(layer, "groups", 1) > 1 else layer for layer in layers]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(36, 10))


def torchvision_network(name: str):
    import torchvision

    return getattr(torchvision.models, name)(weights=None)


def why_without_torchvision() -> str:
    """Empty where torchvision can be imported: from this Python, or from the one that PEER_PYTHON names."""
    peer = os.environ.get("PEER_PYTHON", "")
    if peer:
        ask = [peer, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        sys.path.append(subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip())
    try:
        import torchvision  # noqa: F401
    except (ImportError, RuntimeError) as error:  # RuntimeError: it belongs to another PyTorch
        return f"no torchvision for this PyTorch (make deps): {error}"
    return ""


def make(model: str):
    return {
        "mlp:96x3": mlp,
        "gpt2-small": gpt2,
        "resnet50": lambda: torchvision_network("resnet50"),
        "vit-b16": lambda: torchvision_network("vit_b_16"),
        "convolutions": convolutions,
        "lenet": lenet,
        "lenet-no-bias": lambda: lenet(False),
        "vgg11": vgg11,
        "resnet18": lambda: resnet18(False),
        "resnet18-imagenet": lambda: resnet18(True),
    }[model]()


def differences(model: str) -> list[str]:
    import torch

    with tempfile.TemporaryDirectory() as folder:
        named = model
        if model in SCRIPTED:
            named = f"{folder}/{model}.pt"
            torch.jit.script(make(model)).save(named)
        subprocess.run([str(DUMP), named, f"{folder}/dump", *map(str, MODELS[model])], check=True)
        ours, metadata = read(f"{folder}/dump")
    network = make(model).double()
    theirs = dict(network.named_parameters())
    # Both in the order of the modules.
    order = dict(zip(metadata.pop("order").split(), theirs, strict=True))
    with torch.no_grad():
        for mine, other in order.items():
            theirs[other].copy_(ours[f"parameter.{mine}"].view_as(theirs[other]))
    outputs = network(ours["samples"])
    loss = torch.nn.functional.cross_entropy(outputs.float().flatten(0, -2), ours["labels"].long().flatten())
    loss.backward()
    found = [] if close(outputs, ours["outputs"]) else ["outputs"]
    if not close(loss, ours["loss"].reshape(())):
        found.append("loss")
    found += [f"gradient of {mine}" for mine, other in order.items() if not close(theirs[other].grad, ours[f"gradient.{mine}"])]
    network.eval()
    if not close(network(ours["samples"]), ours["outputs_eval"]):
        found.append("outputs in evaluation")
    counted = counted_flop(model, ours["samples"])
    if counted != metadata:
        found.append(f"operations: {metadata}, PyTorch {counted}")
    return found


def close(a, b) -> bool:
    """Within 1e-4 of the largest value: other kernels sum in another order."""
    return bool((a - b).abs().max() <= 1e-4 * max(float(b.abs().max()), 1e-3))


def main() -> int:
    reexecute_with_torch()
    failed, without_torchvision = 0, why_without_torchvision()
    for model in MODELS:
        if model in FROM_TORCHVISION and without_torchvision:
            print(f"SKIP networks {model}: {without_torchvision}")
            continue
        try:
            found = differences(model)
        except Exception as error:  # a crash of one network must not hide the others
            found = [repr(error)]
        failed += bool(found)
        print(f"FAIL networks {model}: differ in {', '.join(found[:5])}" if found else f"PASS networks {model}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
