"""Runs a LeNet that gradsync-quantize --save wrote, in NumPy: python3 int8_lenet.py MODEL.safetensors test_batch.bin"""
import sys
import numpy as np
from safetensors.numpy import load_file
t, f32 = load_file(sys.argv[1]), np.float32
records = np.fromfile(sys.argv[2], np.uint8).reshape(-1, 3073)
pixels, labels = records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]
mean, deviation = (np.array(v).reshape(3, 1, 1) for v in ([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]))
x, scale, zero = ((pixels / 255 - mean) / deviation).astype(f32), t["input.scale"], int(t["input.zero_point"][0])
q = np.rint(np.clip(x * (f32(1) / scale), -128 - zero, 127 - zero)).astype(np.int32)  # zero point taken off
for name in ("conv1", "conv2", "fc1", "fc2", "fc3"):
    w = t[name + ".weight"].astype(np.int32)
    w = w - t[name + ".weight_zero_point"].astype(np.int32).reshape([-1] + [1] * (w.ndim - 1))
    see = np.lib.stride_tricks.sliding_window_view(q, (5, 5), (2, 3)) if w.ndim == 4 else q.reshape(len(q), -1)
    a = np.einsum("nchwij,ocij->nohw", see, w, optimize=True) if w.ndim == 4 else see @ w.T
    a += t.get(name + ".bias", np.zeros(len(w), np.int32)).reshape([1, -1] + [1] * (w.ndim - 2))
    out = t.get(name + ".scale", np.ones(1, f32))  # the last layer's sums become logits
    m = (scale.astype(float) * t[name + ".weight_scale"] / out).astype(f32) * np.ones(len(w), f32)
    y, scale = a.astype(f32) * m.reshape([1, -1] + [1] * (w.ndim - 2)), out
    if name != "fc3":
        q = np.rint(np.clip(y, 0, 127 - int(t[name + ".zero_point"][0]))).astype(np.int32)
    if w.ndim == 4:
        q = q.reshape(*q.shape[:2], q.shape[2] // 2, 2, -1, 2).max((3, 5))
print((y.argmax(1) == labels).sum(), "of", len(labels), "right")
