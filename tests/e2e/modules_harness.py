# SPDX-License-Identifier: BSD-3-Clause
"""TorchScript modules for the tests: `python modules_harness.py FOLDER`, with a Python that has torch, writes a file of each class.

All take samples of 2 x 3 x 3 and return 5 logits.
"""
import sys

import torch
from torch import nn


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.norm, self.out = nn.Linear(18, 6), nn.BatchNorm1d(6), nn.Linear(6, 5)

    def logits(self, x):
        return self.out(torch.relu(self.norm(self.fc(x))))


class Drop(Base):
    def forward(self, x):
        return self.out(nn.functional.dropout(torch.relu(self.norm(self.fc(x.flatten(1)))), 0.5))


class Kinds(Base):
    """A buffer of each type of whole numbers that each pass changes."""

    def __init__(self):
        super().__init__()
        for name in ("bool", "uint8", "int8", "int16", "int32", "int64"):
            self.register_buffer(f"of_{name}", torch.ones(18, dtype=getattr(torch, name)))

    def forward(self, x):
        self.of_bool.logical_not_()
        self.of_uint8.add_(1)
        self.of_int8.sub_(1)
        self.of_int16.add_(2)
        self.of_int32.add_(3)
        self.of_int64.add_(1)
        return self.logits(x.flatten(1) * self.of_bool * self.of_int16 + self.of_int32 + self.of_uint8 - self.of_int8 + self.of_int64)


class Layouts(Base):
    """Buffers that are not dense: repeated, with gaps, turned; the first with two names."""

    def __init__(self):
        super().__init__()
        self.register_buffer("expanded", torch.ones(1).expand(100000))
        self.register_buffer("strided", torch.ones(18, 2, dtype=torch.int32)[:, 0])
        self.register_buffer("turned", torch.ones(6, 18).t())
        self.again = self.expanded

    def forward(self, x):
        self.strided.add_(1)
        self.turned.mul_(0.5)
        return self.logits(x.flatten(1) * self.again[8] + self.strided + self.turned[:, 0])


class Assigned(Base):
    """Tensors that are no buffers, and buffers that each pass assigns."""

    def __init__(self):
        super().__init__()
        self.calls = torch.zeros(1)
        self.register_buffer("mean", torch.zeros(18))

    def forward(self, x):
        self.calls += 1
        x = x.flatten(1)
        self.mean = 0.5 * self.mean + 0.5 * x.mean(0)
        return self.logits((x - self.mean) * self.mean.mean() / self.calls)


class Counts(Base):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.logits(x.flatten(1) * self.calls)


class Listed(Base):
    def __init__(self):
        super().__init__()
        self.history = [torch.zeros(1)]

    def forward(self, x):
        self.history.append(x.mean())
        return self.logits(x.flatten(1) * self.history[0])


class Parts(Base):
    """A buffer that is a part of a parameter."""

    def __init__(self):
        super().__init__()
        self.register_buffer("row", self.fc.weight.detach()[0])

    def forward(self, x):
        return self.logits(x.flatten(1) * self.row)


class OfComplex(Base):
    def __init__(self):
        super().__init__()
        self.register_buffer("turn", torch.ones(18, dtype=torch.complex64))

    def forward(self, x):
        return self.logits((x.flatten(1) * self.turn).real)


class OfHalf(Base):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(18, dtype=torch.half))

    def forward(self, x):
        return self.logits(x.flatten(1) * self.scale)


class Layerdrop(Base):
    """One layer is left out in half of the passes."""

    def __init__(self):
        super().__init__()
        self.extra = nn.Linear(6, 6)

    def forward(self, x):
        x = torch.relu(self.norm(self.fc(x.flatten(1))))
        if not self.training or bool(torch.rand(1) < 0.5):
            x = x + self.extra(x)
        return self.out(x)


class Experts(Base):
    """Samples choose between two layers."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        x = torch.relu(self.norm(self.fc(x.flatten(1))))
        chosen = (x.mean(1) > 0.5).nonzero()
        if chosen.size(0) > 0:
            x = self.one(x)
        else:
            x = self.other(x)
        return self.out(x)


class Branches(Base):
    """Branches on values and sizes in which every parameter has its gradient whichever is taken."""

    def __init__(self):
        super().__init__()
        self.extra = nn.Linear(6, 6)

    def forward(self, x):
        x = torch.relu(self.norm(self.fc(x.flatten(1))))
        if x.dim() != 2:
            x = x.flatten(1)
        if bool(x.isnan().any()):
            raise RuntimeError("not a number")
        else:
            x = self.extra(x)
        if bool(x.mean() > 0):
            return self.out(2 * x)
        return self.out(x)


class Four(Base):
    """A batch of four and no other."""

    def forward(self, x):
        return self.logits(x.view(4, 2, 3, 3).flatten(1))


if __name__ == "__main__":
    for one in (Drop, Kinds, Layouts, Assigned, Counts, Listed, Parts, OfComplex, OfHalf, Layerdrop, Experts, Branches, Four):
        torch.manual_seed(1)
        torch.jit.script(one().train()).save(f"{sys.argv[1]}/{one.__name__.lower()}.pt")
