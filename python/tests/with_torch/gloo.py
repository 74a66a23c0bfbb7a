"""A rank of a distributed training in a test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


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
