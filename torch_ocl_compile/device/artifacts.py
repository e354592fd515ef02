# torch_ocl_compile/device/artifacts.py: makes torch.compiler.save_cache_artifacts() and load_cache_artifacts() carry
# our cache.
"""Our artifact is an archive of cache_file.py. It contains the cache entries that this process has used, for one
device. It is made when the artifacts are saved, because C++ code finds and stores kernels and plans of eager ops, and
torch does not see that. If something is new, a second call of save_cache_artifacts() records everything again, because
torch loads only the last of several lists of one type.
"""

from __future__ import annotations

import hashlib
import io
import logging
from types import ModuleType
from typing import Any

from torch_ocl_compile import _C, config
from torch_ocl_compile.errors import OclError

log = logging.getLogger(__name__)

TYPE = "ocl"
_STORED_PLAN = b"torch_ocl_compile.compile.stored_plan"  # the module that pickle names in a graph of ours
_NEEDED = ("serialize", "_new_cache_artifacts", "_seen_artifacts")


def register(module: ModuleType) -> None:
    """Registers our artifacts with `module`, torch.compiler._cache, which has just been imported."""
    manager = getattr(module, "CacheArtifactManager", None)
    if any(not hasattr(manager, name) for name in _NEEDED):
        log.info("torch has no CacheArtifactManager that is known: its artifacts do not carry kernels and graphs")
        return

    @module.CacheArtifactFactory.register
    class OclCacheArtifact(module.CacheArtifact):  # type: ignore[misc, name-defined]
        """An archive of cache_file.py. `key` is a hash of `content`."""

        def populate_cache(self) -> None:
            load(self.key, self.content)

        @staticmethod
        def type() -> str:
            return TYPE

    serialize: Any = manager.serialize.__func__  # type: ignore[union-attr]
    record = _Recorder(manager, OclCacheArtifact)

    def serialize_with_ours(cls: Any) -> Any:
        record()
        return serialize(cls)

    manager.serialize = classmethod(serialize_with_ours)  # type: ignore[union-attr]


class _Recorder:
    """Gives torch's manager the entries that it does not have yet."""

    def __init__(self, manager: Any, artifact: type) -> None:
        self.manager = manager
        self.artifact = artifact
        self.artifacts: list[Any] = []  # our artifacts that the manager has
        self.entries: set[tuple[str, str, int]] = set()  # (table, key, hash of the value) of each entry in `artifacts`

    def __call__(self) -> None:
        self._drop_graphs_of_torch()
        if any(artifact not in self.manager._seen_artifacts for artifact in self.artifacts):  # the manager was cleared
            self.artifacts.clear()
            self.entries.clear()
        try:
            config.configure_core()
            if _C.devices_ready() and _C.exec.cache_stats().get("enabled"):
                self._record()
        except (OclError, OSError) as error:
            log.warning("kernels and graphs are not part of the artifacts: %s", error)

    def _record(self) -> None:
        from torch_ocl_compile import cache_file

        used = {name: _C.exec.cache_used(name) for name in cache_file.TABLES}
        archives, seen, found = [], set(), set()
        for index in range(_C.device_count()):
            if not any(used.values()):
                break
            prefix = _C.exec.store_prefix(index)
            if prefix in seen:  # an equal board: the same kernels serve both
                continue
            seen.add(prefix)
            mine = {name: [key for key in keys if key.startswith(prefix)] for name, keys in used.items()}
            used = {name: [key for key in keys if not key.startswith(prefix)] for name, keys in used.items()}
            entries = cache_file.read_entries(mine)
            if any(entries.values()):
                choices = cache_file.choices_of(index)
                found |= {(name, key, hash(value)) for name, part in entries.items() for key, value in part.items()}
                found |= {("tuning", key, hash(value)) for key, value in choices.items()}
                archives.append(cache_file.pack(index, entries, choices))
        if found <= self.entries:
            return
        self.entries |= found
        self.artifacts = [self.artifact(key_of(content), content) for content in archives]
        self.manager._new_cache_artifacts[TYPE] = list(self.artifacts)
        self.manager._seen_artifacts.update(self.artifacts)

    def _drop_graphs_of_torch(self) -> None:
        """Drops our graphs from AOTAutograd's artifacts. AOTAutograd records every graph that it stores or finds, so
        our graphs would be carried twice, and there without a header.
        """
        for kind, artifacts in list(self.manager._new_cache_artifacts.items()):
            kept = [a for a in artifacts if kind == TYPE or _STORED_PLAN not in a.content]
            if len(kept) == len(artifacts):
                continue
            if kept:
                self.manager._new_cache_artifacts[kind] = kept
            else:
                del self.manager._new_cache_artifacts[kind]


def load(key: str, content: bytes) -> None:
    """Puts an artifact into the cache. If it is damaged, or for another machine, writes one line to the log instead."""
    from torch_ocl_compile import cache_file

    name = "an artifact"
    try:
        config.configure_core()
        if key_of(content) != key:
            log.warning("%s of torch.compiler.load_cache_artifacts() is damaged and is not used", name)
            return
        if not _C.exec.cache_stats().get("enabled"):
            log.warning("%s is not loaded: there is no cache", name)
            return
        problem = cache_file.unpack(None, io.BytesIO(content), name).problem
    except (OclError, OSError) as error:
        problem = str(error)
    if problem:
        log.warning("%s", problem)


def key_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
