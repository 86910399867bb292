"""Masks of photographs, in a folder of their own: where one is black, the photograph gives no features.

The mask of `day/a.jpg` is `day/a.jpg.png`, as COLMAP calls it, or `day/a.png`, as nerfstudio does. A mask may have another size
than its photograph, but has its shape. A file of its own: commands read no files themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Bool

from veil.errors import FileFormatError, InputError
from veil.files.photographs.pictures import DAMAGE, opened

# Difference in shape, in pixels of the photograph, up to which a mask of another size is one of it: sizes are rounded.
_MOST_OFF_PX = 2.0


def masks_of(folder: Path, photographs: Mapping[str, Path]) -> dict[str, Path]:
    """The mask of each photograph that has one, by name; `photographs` are paths by name.

    Raises InputError if none of them has a mask in `folder`, or one file may be the mask of two.
    """
    if not folder.is_dir():
        raise InputError(f"there is no folder of masks {folder}")
    masks: dict[str, Path] = {}
    users: dict[Path, str] = {}
    for name, path in photographs.items():
        places = folder / f"{name}.png", (folder / name).with_suffix(".png")
        mask = next((place for place in places if place.is_file() and not place.samefile(path)), None)
        if mask is None:
            continue
        if mask in users:
            raise InputError(f"{mask} may be the mask of {users[mask]} or of {name}; call it {places[0].name}")
        users[mask], masks[name] = name, mask
    if not masks:
        one = next(iter(photographs), "a.jpg")
        raise InputError(f"{folder} has no mask of a photograph; that of {one} is to be called {one}.png")
    return masks


def read_mask(path: Path, width_px: int, height_px: int) -> Bool[np.ndarray, "height width"]:
    """Where an upright photograph of this size may have features: pixels (height, width) at which the mask is not black.

    Raises FileFormatError if the mask cannot be decoded, InputError if it has another shape than the photograph.
    """
    from PIL import Image, ImageOps

    try:
        with opened(path) as stored:
            upright = ImageOps.exif_transpose(stored)
            gray = upright if upright.mode.startswith("I") else upright.convert("L")
            white = Image.fromarray(np.asarray(gray) > 0)
    except FileNotFoundError:
        raise FileFormatError(f"there is no mask {path}") from None
    except DAMAGE as error:
        raise FileFormatError(f"{path} cannot be decoded as a mask ({error}); write it as PNG") from None
    if abs(white.width * height_px - white.height * width_px) > _MOST_OFF_PX * max(white.size):
        raise InputError(
            f"{path} has {white.width}x{white.height} px, another shape than the upright photograph of {width_px}x{height_px}; "
            "make the mask of the photograph as it is shown"
        )
    return np.asarray(white.resize((width_px, height_px), Image.Resampling.NEAREST), dtype=bool)
