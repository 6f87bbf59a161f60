"""What a GPU does by PyTorch: GB/s of a copy and of fused Adam over 2^27 values, TFLOP/s of products of
float32, as TF32 and in bf16, and milliseconds of attention. Prints one line of JSON."""
import json

import torch
import torch.nn.functional as F

VALUES = 1 << 27
ROUNDS, PUTS = 5, 10
PRODUCTS = ((64, 128, 784), (4096, 4096, 4096), (8192, 768, 768), (8192, 3072, 768), (8192, 768, 3072),
            (3072, 768, 8192), (1024, 50304, 768))
ATTENTION = ((32, 128, 12, 64, False), (8, 1024, 12, 64, True), (4, 2048, 12, 64, True), (8, 1024, 24, 32, True),
             (8, 1024, 6, 128, True))


def seconds(put):
    put()
    best = float("inf")
    for _ in range(ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(PUTS):
            put()
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end) / 1e3 / PUTS)
    return best


def adam(found):
    parameters = torch.zeros(VALUES, device="cuda")
    parameters.grad = torch.full_like(parameters, 0.5)
    found["copy, GB/s"] = 8 * VALUES / seconds(lambda: parameters.grad.copy_(parameters)) / 1e9
    optimizer = torch.optim.Adam([parameters], lr=1e-3, fused=True)
    found["adam, GB/s"] = 28 * VALUES / seconds(optimizer.step) / 1e9


def products(found):
    for name, dtype, precision in (("float32", torch.float32, "highest"), ("TF32", torch.float32, "high"),
                                   ("bf16", torch.bfloat16, "high")):
        torch.set_float32_matmul_precision(precision)
        for m, n, k in PRODUCTS:
            a = torch.randn(m, k, device="cuda", dtype=dtype)
            b = torch.randn(n, k, device="cuda", dtype=dtype)
            rate = 2 * m * n * k / seconds(lambda: F.linear(a, b)) / 1e12
            found[f"{name} {m} x {n} x {k}, TFLOP/s"] = rate


def attention(found):
    for dtype in (torch.float32, torch.bfloat16):
        for rows, length, heads, depth, causal in ATTENTION:
            q, k, v = (torch.randn(rows, heads, length, depth, device="cuda", dtype=dtype, requires_grad=True)
                       for _ in range(3))
            name = f"attention {rows} x {length} x {heads} x {depth}, {dtype}"
            found[f"{name}, ms"] = 1e3 * seconds(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal))

            def both():
                F.scaled_dot_product_attention(q, k, v, is_causal=causal).sum().backward()
            found[f"{name}, both, ms"] = 1e3 * seconds(both)


found = {}
adam(found)
products(found)
attention(found)
print(json.dumps({name: float(f"{value:.4g}") for name, value in found.items()}))
