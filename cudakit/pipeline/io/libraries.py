"""Libraries that some sources and sinks need, and cudakit does not."""

from __future__ import annotations

from typing import Any

from cudakit.errors import CudakitError


def pillow(what: str) -> Any:
    """Pillow's module of images, for `what`.

    Raises
    ------
    CudakitError
        If it is not installed.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise CudakitError(f"{what} needs Pillow, which is not here: pip install pillow") from error
    return Image


def writes_images(what: str, suffix: str) -> bool:
    """Whether Pillow writes files of a suffix, for `what`."""
    library = pillow(what)
    return library.registered_extensions().get(suffix.lower()) in library.SAVE


def zarr_for(what: str) -> Any:
    """The module zarr, for `what`: "from_zarr reads", "to_zarr writes".

    Raises
    ------
    CudakitError
        If it is not installed.
    """
    try:
        import zarr
    except ImportError as error:
        raise CudakitError(f"{what} with zarr, which is not here: pip install zarr") from error
    return zarr
