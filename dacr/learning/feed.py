"""The images of D̃_t on their way to the network.

On a GPU they live on the device for the whole session where they fit (iCIFAR-20 30 MB, iDomainNet
0.8 GB); otherwise the next batch is read and pinned while the device works on this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from dacr.runtime.device import room_on, send

SHARE = 0.25
"""How much of the free memory of a GPU the images of a session may take."""
CHUNK = 1024

Read = Callable[[Tensor], Tensor]
"""The uint8 images [B, H, W, 3] at positions of D̃_t."""


class Feed:
    """Images by position, as uint8 tensors on the device."""

    def __init__(
        self, read: Read, count: int, device: torch.device, room: int | None = None
    ) -> None:
        self._read, self._device = read, device
        self._resident: Tensor | None = None
        room = room_on(device, SHARE) if room is None else room
        if room and count and count * read(torch.arange(1)).nbytes <= room:
            chunks = self._prefetched(torch.arange(count).split(CHUNK))
            self._resident = torch.cat([images for _, images in chunks])

    def batches(self, batches: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Each batch of positions with its images, both on the device."""
        if self._device.type == "cpu":
            yield from ((positions, self._read(positions)) for positions in batches)
        elif self._resident is not None:
            for positions in batches:
                own = send(positions, self._device)
                yield own, self._resident[own]
        else:
            yield from self._prefetched(batches)

    def _prefetched(self, batches: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        with ThreadPoolExecutor(1) as reader:
            ahead = reader.submit(self._read, batches[0])
            for number, positions in enumerate(batches):
                images = ahead.result()
                if number + 1 < len(batches):
                    ahead = reader.submit(self._read, batches[number + 1])
                yield send(positions, self._device), send(images, self._device)
