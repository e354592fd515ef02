# torch_ocl_compile/lightning.py: the names for programs that use Lightning.
"""OclAccelerator is for strategies that a program makes itself. The Trainer needs nothing from here."""

from torch_ocl_compile.device.lightning_trainer import OclAccelerator

__all__ = ["OclAccelerator"]
