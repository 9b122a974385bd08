"""Runs a LeNet that gradsync-quantize --save wrote, in NumPy: python3 int8_lenet.py MODEL.safetensors test_batch.bin"""
import sys
import numpy as np
from safetensors import numpy, safe_open

# Integers of activations are -top … top - 1.
net, top = numpy.load_file(sys.argv[1]), 2 ** (int(safe_open(sys.argv[1], "np").metadata().get("activation_bits", 8)) - 1)
records = np.fromfile(sys.argv[2], np.uint8).reshape(-1, 3073)  # a label, then 3 planes of 32 × 32 bytes

# Channels come last throughout. q are integers without their zero point: real = scale · q.
x = (records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1) / 255 - [0.4914, 0.4822, 0.4465]) / [0.2470, 0.2435, 0.2616]
q = np.int32(np.rint(np.float32(x) * (1 / net["input.scale"])).clip(*(np.int32([-top, top - 1]) - net["input.zero_point"])))
for before, layer in zip(("input", "conv1", "conv2", "fc1", "fc2"), ("conv1", "conv2", "fc1", "fc2", "fc3")):
    w = np.moveaxis(net[layer + ".weight"], 0, -1) - np.int32(net[layer + ".weight_zero_point"])
    seen = np.lib.stride_tricks.sliding_window_view(q, (5, 5), (1, 2)) if w.ndim == 4 else np.moveaxis(q, -1, 1).reshape(len(q), -1)
    sums = np.tensordot(seen, w, w.ndim - 1) + net.get(layer + ".bias", 0)
    # In units of the next layer's input, cut off below 0 as ReLU does, and the largest of each 2 × 2 taken.
    y = np.float32(sums) * np.float32(np.float64(net[before + ".scale"]) * net[layer + ".weight_scale"] / net.get(layer + ".scale", 1))
    q = np.int32(np.rint(y).clip(0, top - 1 - np.int32(net.get(layer + ".zero_point", 0))))
    q = q.reshape(len(q), q.shape[1] // 2, 2, -1, 2, q.shape[3]).max((2, 4)) if w.ndim == 4 else q
print((y.argmax(1) == records[:, 0]).sum(), "of", len(y), "right")
