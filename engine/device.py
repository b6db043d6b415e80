"""What captured graphs need of a device: CUDA's streams, events and graphs, and a twin of them on the CPU.

All calls to ``torch.cuda`` that order or capture work stand here, so that what is built on them runs, and is tested,
without a GPU.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from typing import Literal, Protocol

import torch
from torch import Tensor

Body = Callable[[], object]
Strictness = Literal["global", "thread_local"]
"""Whose unsafe calls break a capture: any thread's, or only the capturing one's (cudaStreamCaptureMode)."""


class Mark(Protocol):
    """A point in the device's order of work."""

    def wait(self) -> None:
        """Block the host until all work before it is done."""
        ...


class Device(Protocol):
    """One ordered queue of work, and a second one that brings results back beside it."""

    def context(self) -> contextlib.AbstractContextManager[object]:
        """Plain torch calls inside are queued in order with everything else."""
        ...

    def pinned(self, *shape: int, dtype: torch.dtype) -> Tensor:
        """Zeros on the host that copies to and from the device need not wait for."""
        ...

    def upload(self, target: Tensor, source: Tensor) -> None:
        """Queue a copy of pinned, contiguous ``source``, which must stay as it is until a later mark is reached."""
        ...

    def do(self, body: Body) -> None:
        """Queue torch calls."""
        ...

    def capture(self, body: Body, strictness: Strictness) -> Body:
        """-> what runs ``body`` again on the same tensors. Waits for all work; ``body`` has been done before, so that
        libraries have what they allocate once. Raises RuntimeError if the body cannot be captured."""
        ...

    def download(self, target: Tensor, source: Tensor) -> Mark:
        """Queue a copy into pinned ``target``, beside later work; both are contiguous."""
        ...

    def mark(self) -> Mark: ...

    def synchronise(self) -> None: ...

    def free_bytes(self) -> int | None:
        """None: not told."""
        ...

    def forget(self) -> None:
        """All captures, at once. They may not be run again."""
        ...


class CudaMark:
    def __init__(self, event: torch.cuda.Event) -> None:
        self._event = event

    def wait(self) -> None:
        self._event.synchronize()


class CudaDevice:
    """One compute stream, on which everything is captured and replayed too (a pool's graphs must share a stream), and
    one for results. Belongs to the thread that made it: library handles, and their workspaces, are a thread's own."""

    def __init__(self, place: torch.device, check_liveness: bool = False) -> None:
        """check_liveness: raise on a replay that reads freed memory; slow, for tests."""
        self._place, self._check_liveness = place, check_liveness
        self._compute = torch.cuda.Stream(place)  # type: ignore[no-untyped-call]
        self._results = torch.cuda.Stream(place)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: list[torch.cuda.CUDAGraph] = []
        # cuDNN's attention plans anew for every shape; torch's own kernels take masks and one query as they are.
        torch.backends.cuda.enable_cudnn_sdp(False)
        self._compute.wait_stream(torch.cuda.current_stream(place))  # weights may still be on their way

    def context(self) -> contextlib.AbstractContextManager[object]:
        return torch.cuda.stream(self._compute)

    def pinned(self, *shape: int, dtype: torch.dtype) -> Tensor:
        return torch.zeros(*shape, dtype=dtype, pin_memory=True)

    def upload(self, target: Tensor, source: Tensor) -> None:
        with self.context():
            target.copy_(source, non_blocking=True)

    def do(self, body: Body) -> None:
        with self.context():
            body()

    def capture(self, body: Body, strictness: Strictness) -> Body:
        graph = torch.cuda.CUDAGraph()
        # Kept even if it fails: torch clears the stream's cuBLAS workspace with any graph that goes, and graphs that
        # stay would still use it (pytorch/pytorch issue 193402).
        self._graphs.append(graph)
        self.synchronise()
        with self.context():
            graph.capture_begin(self._pool, strictness, self._check_liveness)
            try:
                body()
            except BaseException:
                self._pool = torch.cuda.graph_pool_handle()  # the allocator may believe the old one to be in use
                raise
            finally:
                graph.capture_end()

        def replay() -> None:
            with self.context():
                graph.replay()

        return replay

    def download(self, target: Tensor, source: Tensor) -> Mark:
        self._results.wait_stream(self._compute)
        with torch.cuda.stream(self._results):
            target.copy_(source, non_blocking=True)
        return self._marked(self._results)

    def mark(self) -> Mark:
        return self._marked(self._compute)

    def synchronise(self) -> None:
        torch.cuda.synchronize(self._place)

    def free_bytes(self) -> int | None:
        return torch.cuda.mem_get_info(self._place)[0]

    def forget(self) -> None:
        self.synchronise()
        self._graphs.clear()

    def _marked(self, stream: torch.cuda.Stream) -> CudaMark:
        # Blocking: the host sleeps instead of spinning, for its core has other work.
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        event.record(stream)
        return CudaMark(event)


class HostMark:
    def __init__(self, device: HostDevice, place: int) -> None:
        self._device, self._place = device, place

    def wait(self) -> None:
        self._device.run(self._place)


class HostDevice:
    """The twin on the CPU: a graph is the body itself. ``late``: queued work is done when somebody waits for it and not
    before, the latest that a device could be."""

    def __init__(self, late: bool = False) -> None:
        self._late = late
        self._queue: deque[Body] = deque()
        self._done = 0

    def context(self) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext()

    def pinned(self, *shape: int, dtype: torch.dtype) -> Tensor:
        return torch.zeros(*shape, dtype=dtype)

    def upload(self, target: Tensor, source: Tensor) -> None:
        self.do(lambda: target.copy_(source))

    def do(self, body: Body) -> None:
        self._queue.append(body)
        if not self._late:
            self.synchronise()

    def capture(self, body: Body, strictness: Strictness) -> Body:
        self.synchronise()
        return lambda: self.do(body)

    def download(self, target: Tensor, source: Tensor) -> Mark:
        self.do(lambda: target.copy_(source))
        return self.mark()

    def mark(self) -> Mark:
        return HostMark(self, self._done + len(self._queue))

    def synchronise(self) -> None:
        self.run(self._done + len(self._queue))

    def free_bytes(self) -> int | None:
        return None

    def forget(self) -> None:
        self.synchronise()

    def run(self, place: int) -> None:
        """Do what was queued before ``place``, counted from the beginning."""
        while self._done < place:
            body = self._queue.popleft()
            self._done += 1
            body()
