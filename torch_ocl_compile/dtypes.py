# torch_ocl_compile/dtypes.py: maps dtypes of PyTorch to dtypes of the IR, and back.
from __future__ import annotations

import torch

from torch_ocl_compile._C import ir

IR_DTYPES: dict[torch.dtype, ir.DType] = {
    torch.bool: ir.DType.kBool,
    torch.uint8: ir.DType.kU8,
    torch.int8: ir.DType.kI8,
    torch.int16: ir.DType.kI16,
    torch.int32: ir.DType.kI32,
    torch.int64: ir.DType.kI64,
    torch.float16: ir.DType.kF16,
    torch.bfloat16: ir.DType.kBF16,
    torch.float32: ir.DType.kF32,
    torch.float64: ir.DType.kF64,
    torch.float8_e4m3fn: ir.DType.kF8E4M3,
    torch.float8_e5m2: ir.DType.kF8E5M2,
    torch.float8_e4m3fnuz: ir.DType.kF8E4M3Fnuz,
    torch.float8_e5m2fnuz: ir.DType.kF8E5M2Fnuz,
}
FLOATS8 = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
NARROW = (torch.float16, torch.bfloat16, *FLOATS8)  # Kernels compute with these as float32.
TORCH_DTYPES: dict[ir.DType, torch.dtype] = {ours: theirs for theirs, ours in IR_DTYPES.items()}
