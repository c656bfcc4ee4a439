"""Draw the README's picture and badges: ``python docs/readme_pictures.py``, with the extra ``examples``.

The picture shows a kernel of the tutorial, the call, and the result of the emulator.
"""

from __future__ import annotations

import contextlib
import io
import runpy
import tomllib
from pathlib import Path

import gallery_pictures
import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

import cudakit as ck

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "pictures"
WIDTH, HEIGHT, MARGIN = 1100, 330, 24
PAPER, INK, FAINT, STRONG = "#14181e", "#e6edf3", "#8b98a5", "#6cb2ff"

CALL = """box_blur["RADIUS":3, "REPEATED":True](
    stream, ck.cover(image.shape, (16, 16)), image, out, *image.shape)"""


def picture() -> Image.Image:
    """Draw the kernel and its call on the left, the photograph and the result on the right."""
    with contextlib.redirect_stdout(io.StringIO()):
        names = runpy.run_path(str(ROOT / "examples" / "tutorial" / "box_blur.py"))
    photograph = gallery_pictures.gray_photo(440)
    stream = names["stream"]
    image = ck.to_device(photograph, stream)
    names.update(ck=ck, image=image, out=ck.to_device(np.zeros_like(photograph), stream))
    exec(CALL, names)
    halves = gallery_pictures.side_by_side(photograph, ck.to_host(names["out"], stream))
    photo = Image.fromarray(np.clip(halves, 0, 255).astype(np.uint8))

    picture = Image.new("RGB", (WIDTH, HEIGHT), PAPER)
    picture.paste(photo, (WIDTH - MARGIN - photo.width, (HEIGHT - photo.height) // 2))
    fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    mono = ImageFont.truetype(str(fonts / "DejaVuSansMono.ttf"), 17)
    small = ImageFont.truetype(str(fonts / "DejaVuSans.ttf"), 15)
    draw = ImageDraw.Draw(picture)
    head = "template <typename T, int RADIUS, bool REPEATED>\n__global__ void box_blur(const T* image, T* out,\n"
    for y, font, colour, words in (
        (38, small, FAINT, "CUDA C++, written once"),
        (66, mono, INK, f"{head}                         int rows, int columns)"),
        (168, small, FAINT, "from Python: T is float, as the arrays say"),
        (196, mono, STRONG, CALL.replace("(16, 16)), ", "(16, 16)),\n    ")),
    ):
        draw.multiline_text((MARGIN, y), words, font=font, fill=colour, spacing=6)
    return picture.quantize(96)


def badge(title: str, words: str) -> str:
    """Draw a badge: a small picture of two words."""
    left, right = 8 * len(title) + 14, 7 * len(words) + 16
    width, turn = left + right, "a4 4 0 0 1"
    style = 'y="14" font-family="Verdana, DejaVu Sans, sans-serif" font-size="11" fill="#fff" text-anchor="middle"'
    parts = (
        f"<title>{title} {words}</title>",
        f'<rect width="{width}" height="20" rx="4" fill="#0a7d91"/>',
        f'<path d="M4 0h{left - 4}v20h-{left - 4}{turn}-4-4v-12{turn} 4-4z" fill="#4a5560"/>',
        f'<text x="{left / 2:g}" {style}>{title}</text>',
        f'<text x="{left + right / 2:g}" {style}>{words}</text>',
    )
    size = f'width="{width}" height="20"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">{"".join(parts)}</svg>\n'


def badges() -> dict[str, str]:
    """Return the badges for the facts of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    minors = [text.rpartition(" ")[2] for text in project["classifiers"] if "Python :: 3." in text]
    cuda = sorted(extra[2:] for extra in project["optional-dependencies"] if extra.startswith("cu"))
    return {
        "python": badge("Python", f"{minors[0]} – {minors[-1]}"),
        "cuda": badge("CUDA", ", ".join(cuda)),
        "license": badge("License", project["license"]),
    }


if __name__ == "__main__":
    ck.stream = ck.emulator.stream
    picture().save(FOLDER / "readme.png", optimize=True)
    for name, text in badges().items():
        (FOLDER / f"badge-{name}.svg").write_text(text, encoding="utf-8")
