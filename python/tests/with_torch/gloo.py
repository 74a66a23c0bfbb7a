"""The ranks of a distributed training in a test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.multiprocessing


@contextmanager
def gloo(rank: int, world: int, folder: str) -> Iterator[None]:
    """This process is rank `rank` of `world` on this machine, with one thread and the same seed; `folder` is
    where they meet."""
    os.environ.update(MASTER_ADDR="127.0.0.1", GLOO_SOCKET_IFNAME="lo")
    store = torch.distributed.FileStore(os.path.join(folder, "store"), world)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=world)
    torch.set_num_threads(1)
    torch.manual_seed(1)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def on_ranks(world: int, work: Callable[[int, str], None], folder: str | os.PathLike) -> None:
    """Calls `work(rank, folder)` in `world` processes, each a rank; what one raises is raised here. `work` is a
    function of a module, because the processes import it."""
    torch.multiprocessing.spawn(_rank, (world, work, os.fspath(folder)), nprocs=world)


def _rank(rank: int, world: int, work: Callable[[int, str], None], folder: str) -> None:
    with gloo(rank, world, folder):
        work(rank, folder)
        torch.distributed.barrier()
    # The work is done. PyTorch keeps works of FSDP's collectives until the process ends, and with them gloo's
    # threads; ending them in the order of static destructors aborts now and then (2.15: "terminate called without
    # an active exception").
    os._exit(0)
