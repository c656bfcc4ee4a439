"""The cheat sheet on paper: cheatsheet.pdf beside its page, printed by a Chromium that has no window."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

LINK = '```{raw} html\n<p class="to-paper">On one page of paper: <a href="cheatsheet.pdf">cheatsheet.pdf</a></p>\n```\n'


def chromium() -> str | None:
    """The program that prints, or None where there is none."""
    return shutil.which("chromium") or shutil.which("google-chrome")


def write(docs: Path) -> None:
    """Write what cheatsheet.md includes: the link to the PDF, where one will be made."""
    (docs / "made" / "cheatsheet.md").write_text(LINK if chromium() else "", encoding="utf-8")


def print_page(built: Path) -> None:
    """Print the page of a site that is built, where there is a Chromium."""
    program = chromium()
    if program is None:
        return
    with TemporaryDirectory() as profile:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        options += [f"--user-data-dir={profile}", "--no-pdf-header-footer", "--virtual-time-budget=5000"]
        target = f"--print-to-pdf={built / 'cheatsheet.pdf'}"
        page = (built / "cheatsheet.html").as_uri()
        subprocess.run([program, *options, target, page], check=True, capture_output=True, timeout=120)
