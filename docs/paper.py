"""The cheat sheet on paper: cheatsheet.pdf beside its page, printed by headless Chromium."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

LINK = '```{raw} html\n<p class="to-paper">On one page of paper: <a href="cheatsheet.pdf">cheatsheet.pdf</a></p>\n```\n'


def chromium() -> str | None:
    """Return the path of Chromium, or None."""
    return shutil.which("chromium") or shutil.which("google-chrome")


def write(docs: Path) -> None:
    """Write the link to the PDF for cheatsheet.md, if Chromium can print it."""
    (docs / "made" / "cheatsheet.md").write_text(LINK if chromium() else "", encoding="utf-8")


def print_page(built: Path) -> None:
    """Print the page of a built site, if there is a Chromium."""
    program = chromium()
    if program is None:
        return
    with TemporaryDirectory() as profile:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        options += [f"--user-data-dir={profile}", "--no-pdf-header-footer", "--virtual-time-budget=5000"]
        target = f"--print-to-pdf={built / 'cheatsheet.pdf'}"
        page = (built / "cheatsheet.html").as_uri()
        subprocess.run([program, *options, target, page], check=True, capture_output=True, timeout=120)
