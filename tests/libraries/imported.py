# tests/libraries/imported.py: what the fork server imports once for the programs of this folder, besides torch's own modules.
import contextlib
import importlib

from benchmarks.harness.networks import import_torchvision

with contextlib.suppress(Exception, SystemExit):  # Beside a torch for the CPU, torchvision needs a hand.
    import_torchvision()
with contextlib.suppress(ImportError):
    for name in ("transformers.modeling_utils", "transformers.generation.utils", "transformers.masking_utils"):
        importlib.import_module(name)
